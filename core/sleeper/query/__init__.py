"""Queries: rows of one table by key, range or region, and SQL over all tables.

A `Query` names the rows, the columns and the version to read. *Planning* turns it, with a
version of the table's state, into leaves, and for each leaf the files that may contain its
rows. *Running* merges the files of each leaf and returns the rows, leaf after leaf, as a
stream of Arrow batches. A SQL statement reads every table that it names at one version.

One query passes through `service` (opens the table, applies the caller's restriction), `run`,
`plan`, `key_filters` and `result`; a statement through `service`, `sql.statement`, `plan`
and `result`.

Invariants: a query returns exactly the rows committed up to its version. A short query takes no
hold; if garbage collection deletes a file before the first rows, the query restarts. A long
query holds its version until its end. The engine's pool bounds memory.
"""
