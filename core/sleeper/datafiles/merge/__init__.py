"""Sorts rows and merges sorted files, with filters, aggregations and iterators."""
