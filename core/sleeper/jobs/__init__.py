"""Jobs and tasks as reports show them, and the queues of jobs.

A *job* is a piece of work with an id, of one kind, on one table. Each attempt at it is a
*run*, by a *task*: one worker process from its start to its end. Writers record *events*;
a tracker keeps them; states are derived from the events it has.

Invariants: recording an event twice, or events in any order, gives the same state, because every
message may arrive twice and a worker may die at any time. Trackers inform people. The state of a
table is only in the state store. A queue delivers a message to one receiver at a time, and loses
no message.
"""
