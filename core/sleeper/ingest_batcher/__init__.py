"""The ingest batcher: many small files become few ingest jobs.

A *request* names a file for a table. When the pending requests reach the count, size or age of the
table's properties, they become a job for the queue that the table names. message -> requests,
stored -> batches -> job id recorded on its requests -> job sent -> requests marked as sent.

Invariants: a duplicate request is one request; a request is in one job; a job is recorded before it
is sent, so a job that may not have been sent is sent again with the same id and files.
"""
