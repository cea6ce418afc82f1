"""Stashes on Spark: the format `sleeper-stash`, and the writing of large tables."""
