"""Queries that come as messages: planned once, run leaf by leaf, their rows published.

A *query* is cut into *subqueries*, one for each leaf that may hold its rows (*planning*),
which are recorded in the *tracker* and then sent (*dispatch*). A worker runs a subquery and
*publishes* its rows (*leaf running*). Whoever ends the last one ends the query, and tells
whoever listens (*telling*).

What must hold: a query reads one version at one time, whenever and however often its
messages come: both are pinned in the tracker before anything else, and the version is
*held* until the query ends. Subqueries have the same ids each time. So a second run writes
the same rows, a finished query stays finished, and nothing is counted twice. Rows are
published before the tracker says so. A query that cannot succeed is FAILED with its
reason; nothing is tried for ever. What its caller may not see, a query does not read.
"""
