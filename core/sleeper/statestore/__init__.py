"""The state of a table: an ordered log of transactions, and the state folded from it.

A *transaction* is one change, with an id and, once applied, a *number*: dense, from 1.
An *entry* of the *log* holds one or more consecutive transactions that were committed
together. The *fold* is a small SQLite database with the result of all transactions. A
*version* is the number that a reader reads at; the *horizon* is the oldest version that
can still be read. A *hold* is an expiring claim on a version; a *follower* is a named
reader of changes with a cursor; a *state snapshot* is a copy of the fold in the
object store.

Data flows: `StateStore.commit` -> `group_commit` (callers of threads and processes) ->
`entry_commit` (one entry): validate and apply each transaction on the fold -> the log's
conditional append -> SQLite COMMIT.
`StateStore.reading` -> catch up from the log -> one SQLite read transaction, with
the queries in `reading/`.

Invariants: only transactions change the fold, and applying one is
deterministic (no clock, no randomness: the entry's time is the only time), so that every
copy of the fold at one number is equal. Numbers are never reused. A refused
transaction is never logged.
"""
