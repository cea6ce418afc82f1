"""Reads single pages of data files, for lookups and narrow ranges."""
