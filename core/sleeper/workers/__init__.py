"""Processes that take messages from queues: local workers, tasks and functions."""
