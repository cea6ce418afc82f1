"""Queries, their parts and their destinations as JSON messages (docs/formats.md)."""
