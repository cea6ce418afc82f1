"""The operations of the systems. Its import registers them beside those of the core."""

from simulation.workload import export_queues, stashes
from simulation.workload.operations import OPERATIONS

SYSTEMS = (export_queues, stashes)
"""The modules of the operations."""

__all__ = ["OPERATIONS", "SYSTEMS"]
