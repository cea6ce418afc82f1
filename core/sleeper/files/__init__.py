"""Metadata of data files: path, size, key bounds and references.

A *data file* is one sorted Parquet file. A *file reference* says that the rows of a
file which lie in a partition's region belong to that partition. References of one file
never overlap. A file without references is still tracked until it is collected.
"""
