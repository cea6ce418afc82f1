"""Versions of stores, on disk and in memory."""
