"""Adapters: named pairs of a source and a sink that run again and again."""
