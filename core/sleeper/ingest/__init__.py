"""Ingest: turns rows into durable, sorted data files of a table.

Files or batches of rows -> checked and cast -> sorted in bounded memory -> cut at the leaves ->
data files with sidecars -> one commit under the job's id. Invariants: a job is committed once,
however often its message is delivered; one bad row refuses the job, unless rejects are set
aside; a failed job leaves no visible rows.
"""
