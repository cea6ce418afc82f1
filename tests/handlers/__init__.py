"""Handlers with events as AWS sends them, against an instance in a folder."""
