"""Simulates SQS in memory: standard and FIFO queues, dead letters, deduplication, batches."""
