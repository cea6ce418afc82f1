"""The change feed of a table: what each transaction changed, in the order of their numbers.

A *change* is rows that an ingest or import added, or regions whose rows a delete removed. Its
number is that of the transaction. Compactions, splits and collections change no rows. A *step* is
a few transactions whose changes are planned at once. A *follower* is a named position in the feed:
the table keeps the changes after it.

Invariants: numbers ascend, rows of a number ascend by key, and no change is left out. If some
changes after a position are collected, reading from it fails.
"""
