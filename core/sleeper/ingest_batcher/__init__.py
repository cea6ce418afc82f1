"""The ingest batcher: many small files become few ingest jobs.

A *request* names a file for a table. Requests wait until enough are there, by count, by size
or by age, as the table's properties say; then they become a job for the queue that the
table names. message -> requests, stored -> batches -> job id recorded on its requests ->
job sent -> requests marked as sent.

What must hold: a request that came twice is one request; a request is in one job; a job
is recorded before it is sent, so one that may not have been sent is sent again under the
same id with the same files.
"""
