"""Bulk import: loads that exceed one task, distributed over a cluster.

Input files -> *splits* (row groups, or a text file) -> a sample of their keys -> a tree with
enough leaves -> *slots* (ranges of the first row key field with equal numbers of rows, the work
of one task each) -> *pieces* (sorted rows of a split in a slot), exchanged by the cluster -> data
files of each slot's leaves -> one commit under the job's id. Invariants: the commit has only
files of finished tasks; tasks and jobs may run repeatedly or concurrently; every task keeps
within its memory.
"""
