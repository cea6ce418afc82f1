"""Rows of results as JSON, text and files."""
