"""Iterators: Python over Arrow batches, in the merge. Their protocol, and built-in ones.

A `RowIterator` is a class of a user's wheel, or of this package. The merge passes sorted batches
of whole groups to it, and checks the sorted batches of the same schema that it returns. The
result of a table's iterator must not depend on which rows were compacted together before:
`f(f(a) + f(b))` equals `f(a + b)`.
"""
