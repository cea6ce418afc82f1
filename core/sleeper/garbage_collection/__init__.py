"""Garbage collection: objects that nobody needs any more are deleted.

A *collectable* file has lost its last reference longer ago than the table's delay, and no
hold, follower or readable version needs it. It goes in two steps: an entry takes it out
and raises the horizon, then its objects are deleted, then an entry forgets it. An *orphan*
is an object of a run that died before its commit; it goes when its run is older than the
orphan age, after an entry has barred such runs from committing. A dropped table goes piece by
piece, its index row last. What must hold: nothing that is referenced, held, or may still
be committed is deleted; every step may be repeated, so a collector may die anywhere.
"""
