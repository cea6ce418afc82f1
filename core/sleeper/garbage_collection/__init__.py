"""Garbage collection of unneeded objects.

A *collectable* file has lost its last reference longer ago than the table's delay, and no
hold, follower or readable version needs it. Its collection has three steps: an entry removes it
and raises the horizon, its objects are deleted, an entry removes its row. An *orphan* is an
object of a run that ended before its commit. It is deleted once its run is older than the orphan
age, after an entry has barred such runs from committing. A dropped table is deleted part by
part, its index row last. `clones` keeps the files that clones share with their owner.

Invariants: no object is deleted that is referenced, held, or may still be committed. Every step
is idempotent, so a collector may be interrupted anywhere.
"""
