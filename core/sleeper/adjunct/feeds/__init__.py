"""Feeds, which move data from an input into a store."""
