"""Sleeper for Python: a serverless record store over sorted Parquet files.

Data moves one way: message -> handler -> workflow -> state store and data files.
Nothing imports back up that line. This module stays light on purpose, because
control-plane code imports it: the Python API's names are loaded when first used.
"""

import sys
from typing import TYPE_CHECKING, Any

# Without pip, nothing else checks the Python of a platform. Its own syntax would fail first.
_OLDEST = 0x030B0000
if sys.hexversion < _OLDEST:
    raise ImportError(
        f"sleeper needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}"
    )

if TYPE_CHECKING:
    from sleeper.api import (
        Instance,
        Rowset,
        Table,
        TableReader,
        TableWriter,
        Transaction,
        create_instance,
        open_instance,
        restore_instance,
    )
    from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError, SequencedExport
    from sleeper.export_queue.methods import ExportQueue

__version__ = "0.2.0"
DISTRIBUTION = "sleeper-store"
"""The name that pip installs the package by. `sleeper` on the index is another project."""
INSTANCE_VARIABLE = "SLEEPER_INSTANCE"
"""The environment variable that names the instance of a command."""
READ_ONLY_VARIABLE = "SLEEPER_READ_ONLY"
"""The environment variable that opens instances read-only."""
UPGRADE_VARIABLE = "SLEEPER_UPGRADE"
"""The environment variable that converts the states of instances of older versions."""

__all__ = [
    "ExportBatch",
    "ExportQueue",
    "Instance",
    "RefusedExportsError",
    "Rowset",
    "SequencedExport",
    "Table",
    "TableReader",
    "TableWriter",
    "Transaction",
    "__version__",
    "create_instance",
    "open_instance",
    "restore_instance",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sleeper import api

        return getattr(api, name)
    raise AttributeError(f"module 'sleeper' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
