"""Rows of results as text and files."""
