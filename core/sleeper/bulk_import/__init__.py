"""Bulk import: loads too big for one task, spread over a cluster.

Input files -> *splits* (some row groups, or a file of text) -> a sample of their keys -> the
tree is split where it has too few leaves -> *slots* (ranges of the first row key field, of
like many rows, each one task's work) -> *pieces* (sorted rows of a split that lie in a slot),
exchanged by the cluster -> each slot sorted and written as data files of its leaves -> one
commit under the job's id. What must hold: only files that a finished task named are committed;
tasks and whole jobs may run again, or twice at once; each keeps within its memory.
"""
