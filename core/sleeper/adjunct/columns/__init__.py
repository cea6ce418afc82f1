"""Lookups of whole columns of keys in a version of a store."""
