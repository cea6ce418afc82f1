"""A local instance in a simulated world: one machine, its processes, and a folder.

The product's own worker, runner and clients run over the real folder and SQLite. `ports` lets the
world in at each call of a port, and `processes` replaces what a process of the system is.
"""
