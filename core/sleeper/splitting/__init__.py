"""Splitting: a leaf partition with too many rows becomes several.

*Find* lists the leaves over the table's threshold. *Split* cuts one at quantiles of the
merged sketches of its files, in one transaction that holds only while the leaf is still
a leaf. What must hold: rows do not move; a reference stays where it is until it is
pushed down; a leaf that cannot be cut is remembered until new files reach it.
"""
