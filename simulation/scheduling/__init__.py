"""Runs threads of simulated processes one at a time, in an order and at times that a seed decides.

*Thread*: a thread of the system that runs only while it has the *baton*. *Process*: a group of
threads that die together. *Virtual time* moves only when every thread waits: then it jumps to the
moment at which the first wait ends.

`scheduler` has the threads and the time. `patching` replaces Python's own threads, locks, clocks
and random sources, so that product code runs unchanged.
"""
