"""Engines, which hold the keys and values of one version of a store."""
