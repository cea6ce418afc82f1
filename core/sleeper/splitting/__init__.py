"""Splitting of leaf partitions with too many rows.

*Find* lists the leaves over the table's threshold. *Split* cuts one at quantiles of its
files' sketches, in one transaction that is valid only while the leaf is still a leaf.

Invariants: rows do not move. A reference stays until it is pushed down. A leaf that cannot be
split is marked until it gets new files.
"""
