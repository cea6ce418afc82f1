"""Puts workflows and adapters together: the only place that chooses adapters.

An `Instance` is the set of ports that a kind of instance offers; `local_instance` makes it
from a folder. Above that stands one module per workflow, which opens what the workflow
needs for one table and calls it. Command line, Python API and worker processes call these.
"""
