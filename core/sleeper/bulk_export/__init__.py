"""Bulk export: a whole table as Parquet files, one for each leaf.

An export first writes its plan, the version and its leaves; then, for each leaf, a file of its
processed and sorted rows; then a marker. Invariants: a repeated message writes the same files, a
hold keeps the version during the export, and next to a marker are all rows, each once.
"""
