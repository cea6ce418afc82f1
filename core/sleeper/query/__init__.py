"""Queries: rows of one table by key, range or region, and SQL over all tables.

A `Query` says which rows and columns of which version. *Planning* turns it, with a
version of the table's state, into leaves, and for each leaf the files that may hold its
rows. *Running* merges each leaf's files and hands out the rows, leaf after leaf, as a
stream of Arrow batches. A SQL statement reads every table that it names at one version.

What must hold: a query gives exactly the rows committed up to its version. A short
query claims nothing; if a file was collected before it handed out rows, it starts
again. A long one takes a *hold* on its version and lets it go at its end. Memory is
bounded by the engine's pool, however much is read.
"""
