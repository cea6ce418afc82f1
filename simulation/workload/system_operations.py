"""The operations of the systems. Its import registers them beside those of the core."""

from simulation.workload import adapters, adjunct_stores, export_queues, iceberg, stashes, status
from simulation.workload.operations import OPERATIONS

SYSTEMS = (stashes, export_queues, adapters, adjunct_stores, iceberg, status)
"""The modules of the operations."""

__all__ = ["OPERATIONS", "SYSTEMS"]
