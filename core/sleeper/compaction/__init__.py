"""Compaction: merges files of a leaf partition into one.

*Create* (`plan`, `strategy`) pushes references down to the leaves, selects files by the table's
strategy and assigns them to jobs under a lease, in the log. *Dispatch* sends the jobs after their
assignment is committed. *Run* (`service`, `run`, `lease`) merges a job's files while it renews
the lease. *Commit* replaces the files with the result, on the condition that the job still holds
them. Invariants: a job's files are of one partition; a job that lost its lease changes nothing;
creation releases expired jobs, so no file stays locked.
"""
