"""Processing: filters, aggregations and an iterator that rows pass through in every merge.

The table's properties are *parsed* into a `Processing`, *checked* against the schema and
stored in the table's state. It contains the name and configuration of an iterator. The merge of
`datafiles` applies it. This package does not use Arrow.

Invariants, so that no result depends on the compaction history: filters run before aggregations,
and use only keys if rows are aggregated; each aggregation is associative, commutative and closed on
its field's type, so that it cannot fail.
"""
