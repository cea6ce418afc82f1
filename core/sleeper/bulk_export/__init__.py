"""Bulk export: a whole table as Parquet files, one for each leaf.

A message -> a plan (the version, its leaves, the file of each), written down before anything
else -> each leaf's rows at that version, processed as the table says and sorted, to its file ->
a marker when all are there. What must hold: a message that comes again writes the same files;
the version is held while it is read; whoever finds the marker finds all rows, once.
"""
