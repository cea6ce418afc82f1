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
from simulation.workload.registry import OPERATIONS

CORE = (
    *(tables, properties, ingests, transactions, changes, bulk_imports),
    *(reads, messages, copies, feeds, http, dead_letters, background),
)
"""The modules of the operations."""

__all__ = ["CORE", "OPERATIONS"]
