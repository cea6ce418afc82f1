"""Data files: the one merge, and what stands at its edges.

Sources (Parquet, CSV, JSON lines, Arrow batches) are checked and cast to the table's
Arrow schema; a *sort* or a *merge* makes one stream of rows in key order; a *writer*
cuts it into data files with their sidecars. Rows are Arrow batches throughout, never
Python objects. Everything runs on DataFusion in a memory pool of a given size and
spills to local disk beyond it.
"""
