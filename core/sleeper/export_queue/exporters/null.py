"""The exporter `null:`, which takes exports and forgets them: for measurements and trials."""

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.instance import Instance


class _NullExporter:
    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""

    def close(self) -> None:
        """See the protocol."""


def make(_instance: Instance, _queue: ExportQueue) -> Exporter:
    """Returns the exporter."""
    return _NullExporter()


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the exporter has a target, a password or options."""
    settings = queue.exporter
    if settings.target or settings.password or settings.options:
        raise InvalidRequestError(
            f"export queue {queue.name!r}: the exporter {settings.text!r} has no target, password "
            "or options (expected null:)"
        )
