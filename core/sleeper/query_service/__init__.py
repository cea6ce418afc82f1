"""Queries as messages: planned once, run leaf by leaf, their rows published.

`plan` divides a *query* into *subqueries*, one for each leaf that may have its rows; `dispatch`
records them in the *tracker* and sends them. A worker runs a subquery (`run`) and *publishes*
its rows. The worker that ends the last subquery ends the query, and sends its last *frames* to
its connections.

Invariants: a query reads one version at one time, for every delivery of its messages, because
the first delivery pins both in the tracker, and a hold keeps the version until the query ends.
Subqueries have deterministic ids, so a second run writes the same rows, a finished query stays
finished, and nothing is counted twice. Rows are published before the tracker records them. A
query that cannot succeed is FAILED with its reason, and attempts are limited. A query reads
nothing that its caller may not see.
"""
