"""The exporters that come with the product, by kind: the text before the first colon.

A module of an exporter has `check` and `make`. It is imported on first use, because it may need a
package that only its extra installs.
"""

import importlib
from typing import Protocol, cast

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import Exporter, MakeExporter
from sleeper.instance import Instance

_MODULES = {
    "kafka": "kafka",
    "null": "null",
    "opensearch": "opensearch",
    "postgres": "postgres",
    "postgresql": "postgres",
    "python": "python",
    "redis": "redis",
    "rediss": "redis",
    "sqs": "sqs",
    "table": "table",
    "webhook": "webhook",
}

# Each call commits files to a table.
_TOGETHER = frozenset({"table"})


class _ExporterModule(Protocol):
    """What the module of an exporter has."""

    make: MakeExporter

    def check(self, instance: Instance, queue: ExportQueue) -> None:
        """Raises InvalidRequestError if the settings are invalid. Need not connect."""


def check_exporter(instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the kind of the queue's exporter or a setting is invalid."""
    _module(queue).check(instance, queue)


def open_exporter(instance: Instance, queue: ExportQueue) -> Exporter:
    """Returns a new exporter of the queue. Errors as of `check_exporter`."""
    return _module(queue).make(instance, queue)


def drains_together(queue: ExportQueue) -> bool:
    """Returns whether a call for several buckets is much cheaper than one for each of them."""
    return queue.exporter.kind in _TOGETHER


def _module(queue: ExportQueue) -> _ExporterModule:
    kind = queue.exporter.kind
    kinds = ", ".join(f"{name}:" for name in _MODULES)
    if kind not in _MODULES:
        raise InvalidRequestError(
            f"export queue {queue.name!r}: unknown kind of exporter {kind[:40]!r}"
            f"{did_you_mean(kind, _MODULES)} (expected one of: {kinds})"
        )
    if ":" not in queue.exporter.text:
        raise InvalidRequestError(
            f"export queue {queue.name!r}: exporter {kind!r} has no colon (expected one of: "
            f"{kinds}, and the receiver)"
        )
    return cast(_ExporterModule, importlib.import_module(f"{__name__}.{_MODULES[kind]}"))
