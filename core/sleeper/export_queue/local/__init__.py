"""The storage of export queues in SQLite."""
