"""Users' files as checked Arrow batches: Parquet, CSV and JSON lines."""
