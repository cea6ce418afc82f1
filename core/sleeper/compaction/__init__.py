"""Compaction: files of a leaf partition are merged into one.

*Create* decides jobs: references are pushed down to the leaves, files are picked by the
table's strategy and assigned to jobs under a lease, in the log. *Dispatch* sends the
jobs, after their assignment is committed. *Run* merges a job's files, renewing its
lease. *Commit* replaces them by the result, exactly while the job still holds them.
What must hold: a job's files come from one partition; a job that lost its lease changes
nothing; files are never locked for ever, because creation releases expired jobs.
"""
