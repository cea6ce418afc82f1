"""The operations of the core. Its import registers them all."""

from simulation.workload import background, changes, ingests, reads, tables
from simulation.workload.registry import OPERATIONS

CORE = (tables, ingests, changes, reads, background)
"""The modules of the operations."""

__all__ = ["CORE", "OPERATIONS"]
