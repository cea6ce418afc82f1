"""Jobs and tasks as people see them, and the queues that carry jobs.

A *job* is a piece of work with an id, of one kind, on one table. Each attempt at it is a
*run*, by a *task*: one worker process from its start to its end. Writers record *events*;
a tracker keeps them; states are derived from the events it has.

What must hold: recording an event twice, or events in any order, gives the same state,
because every message may arrive twice and a worker may die at any line. Trackers are
for people and are never asked what is true of a table: that is the state store's. A
queue gives a message to one receiver at a time, and never loses one.
"""
