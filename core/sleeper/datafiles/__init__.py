"""Data files: sources, sort, merge, and the writer with its sidecars.

`sources` checks and casts users' files (Parquet, CSV, JSON lines) and Arrow batches to the
table's Arrow schema. `merge` sorts or merges rows into one stream in key order. `write` cuts the
stream into data files, and `sidecars` describe them. `remote` reads parts of files in S3.
`engine` is DataFusion with its workarounds. Rows are always Arrow batches, never Python objects.
DataFusion runs in a memory pool of a given size and spills to local disk beyond it.
"""
