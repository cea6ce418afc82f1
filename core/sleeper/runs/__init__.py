"""Runs of jobs: how they are tracked, kept alive, retried and rejected."""
