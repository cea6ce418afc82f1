"""Ingest: rows become durable, sorted data files of a table.

Files or batches of rows -> checked and cast -> sorted in bounded memory -> cut at the
leaves -> data files with sidecars -> one commit under the job's id. What must hold: a
job is committed once, however often its message comes; one bad row refuses the whole
job unless its rejects are set aside; a job that failed left nothing that is seen.
"""
