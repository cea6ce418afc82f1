"""Enrichment: rows get fields from stores, in ingests and in distributed jobs."""
