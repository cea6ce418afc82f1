"""Adjunct stores: local read-only copies of datasets that follow their input (docs/adjunct.md).

A *store* has one *input*, which may be a table, a stash, files, or a stream. A *version* of the
store is a complete copy in a folder, or in memory. It is built beside the one that serves lookups
and then takes its place, so that a reader sees one version only. *Changes* of an unbounded input
are applied to the version that serves, atomically. The *position* is the place in the input up to
which a version has all data; it is saved with the data, and the status shows it as `offset`. A
*bounded* input delivers whole datasets, and its version is *sealed* at the marker that ends one.

A *feed* moves data from an input into a store. An *engine* holds the keys and values of a version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sleeper.adjunct.adjunct_store import AdjunctStore
    from sleeper.adjunct.config import parse_config, read_config
    from sleeper.adjunct.extraction import (
        Envelope,
        KeyValueExtractor,
        KeyValueExtractorFactory,
        ProcessedStore,
        Processor,
    )
    from sleeper.adjunct.store_manager import (
        AdjunctDataStoreManager,
        AdjunctDataStoreManagerFactory,
        StoreGroup,
        StreamPartition,
        make_manager,
    )
    from sleeper.adjunct.versions.status import StoreStatus

__all__ = [
    "AdjunctDataStoreManager",
    "AdjunctDataStoreManagerFactory",
    "AdjunctStore",
    "Envelope",
    "KeyValueExtractor",
    "KeyValueExtractorFactory",
    "ProcessedStore",
    "Processor",
    "StoreGroup",
    "StoreStatus",
    "StreamPartition",
    "make_manager",
    "parse_config",
    "read_config",
]

_MODULES = {
    "AdjunctDataStoreManager": "sleeper.adjunct.store_manager",
    "AdjunctDataStoreManagerFactory": "sleeper.adjunct.store_manager",
    "Envelope": "sleeper.adjunct.extraction",
    "KeyValueExtractor": "sleeper.adjunct.extraction",
    "KeyValueExtractorFactory": "sleeper.adjunct.extraction",
    "ProcessedStore": "sleeper.adjunct.extraction",
    "Processor": "sleeper.adjunct.extraction",
    "StoreGroup": "sleeper.adjunct.store_manager",
    "StreamPartition": "sleeper.adjunct.store_manager",
    "make_manager": "sleeper.adjunct.store_manager",
    "parse_config": "sleeper.adjunct.config",
    "read_config": "sleeper.adjunct.config",
    "AdjunctStore": "sleeper.adjunct.adjunct_store",
    "StoreStatus": "sleeper.adjunct.versions.status",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'sleeper.adjunct' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
