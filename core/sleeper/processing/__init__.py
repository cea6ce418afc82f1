"""Processing: filters, aggregations and an iterator that rows pass through in every merge.

The table's properties of these names are *parsed* into a `Processing`, which is *checked*
against the table's schema. Of an iterator there are only the name and what it is told. It is
kept in the table's state, and the merge of datafiles applies it. Nothing here knows Arrow.

What must hold, so that no answer depends on what was compacted when: filters come before
aggregations, and use only keys where rows are aggregated; each aggregation is associative,
commutative, and closed on its field's type, so that it cannot fail either.
"""
