"""The operations of the core. Its import registers them all."""

from simulation.workload import (
    background,
    bulk_imports,
    changes,
    copies,
    dead_letters,
    feeds,
    http,
    ingests,
    messages,
    properties,
    reads,
    tables,
    transactions,
)
from simulation.workload.registry import OPERATIONS, Operation

CORE = (
    *(tables, properties, ingests, transactions, changes, bulk_imports),
    *(reads, messages, copies, feeds, http, dead_letters, background),
)
"""The modules of the operations."""

__all__ = ["CORE", "OPERATIONS", "core_operations"]


def core_operations() -> list[Operation]:
    """Returns the operations of the core in a fixed order, whatever this process has imported."""
    return [
        each
        for module in CORE
        for each in OPERATIONS.values()
        if each.run.__module__ == module.__name__
    ]
