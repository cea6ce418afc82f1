"""Sends exports to a queue of SQS: `sqs:QUEUE_URL` or `sqs:QUEUE_NAME`.

A message is the JSON of an export. In a FIFO queue the group of a message is the hash of its key,
so that exports of a key stay in order, and its deduplication id is the hash of its body.
"""

import hashlib

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.json_values import export_texts, key_texts
from sleeper.export_queue.exporters.options import check_options, check_text, exporter_name
from sleeper.instance import Instance
from sleeper.jobs.queue import ExternalQueue, OutgoingMessage

_TARGET = (
    r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[0-9]+/[A-Za-z0-9_-]{1,80}(\.fifo)?"
    r"|[A-Za-z0-9_-]{1,80}(\.fifo)?"
)
_GROUP_LENGTH = 32


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the settings are invalid. Connects to nothing."""
    check_options(queue, ())
    check_text(
        queue, "target", queue.exporter.target, _TARGET, "the URL or the name of a queue of SQS"
    )
    if queue.exporter.password is not None:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: a password is given (expected none: SQS takes the "
            "credentials of AWS of the process)"
        )


def make(instance: Instance, queue: ExportQueue) -> "SqsExporter":
    """Returns the exporter."""
    check(instance, queue)
    return SqsExporter(instance.jobs.external_queue(queue.exporter.target))


class SqsExporter:
    """Sends a message per export."""

    def __init__(self, queue: ExternalQueue) -> None:
        self._queue = queue

    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""
        bodies = export_texts(batch).to_pylist()
        if self._queue.is_fifo:
            keys = key_texts(batch).to_pylist()
            messages = [
                OutgoingMessage(body, _hash(key)[:_GROUP_LENGTH], _hash(body))
                for key, body in zip(keys, bodies, strict=True)
            ]
        else:
            messages = [OutgoingMessage(body) for body in bodies]
        reasons = self._queue.send(messages)
        if reasons:
            raise RefusedExportsError(reasons)

    def close(self) -> None:
        """See the protocol. The client of SQS is shared by the process."""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
