"""Metadata of data files: path, size, key bounds and references.

A *data file* is one sorted Parquet file. A *file reference* assigns the rows of a
file in a partition's region to that partition. References of one file
never overlap. A file without references is still tracked until it is collected.
"""
