"""Applies queued commits to tables: durable messages become transactions, in order."""
