"""Iterators: Python over Arrow batches, in the merge. Their protocol, and some to use and to read.

A `RowIterator` is a class of a user's wheel, or of this package. The merge gives it sorted
batches of whole groups, takes sorted batches of the same schema from it, and checks them.
What must hold of an iterator of a table, so that no answer depends on what was compacted
when: what it makes of some rows, put together with what it makes of others, it makes into
the same as of all rows at once.
"""
