"""Export queues of an instance from Python."""

from collections.abc import Sequence
from contextlib import suppress

from sleeper.api.argument_types import check_argument_types, checks_own_arguments
from sleeper.errors import NotFoundError
from sleeper.export_queue import control
from sleeper.export_queue.control import PeekedExports, queue_status
from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.listings import QueueStatus
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.service import create_queue, delete_queue
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance as Ports
from sleeper.options import takes


class ExportQueue:
    """An export queue. `Instance.export_queue` and `Instance.create_export_queue` return it.

    Methods raise `NotFoundError` if the queue was deleted, and `UnavailableError` if its storage
    does not answer.
    """

    def __init__(self, instance: Ports, name: str) -> None:
        self._instance = instance
        self.name = name

    def status(self) -> QueueStatus:
        """Returns how far the queue is, and the buckets whose last call failed."""
        return control.queue_status(self._instance, self.name)

    def peek(
        self, limit: int = 20, bucket: int | None = None, dead: bool = False
    ) -> Sequence[PeekedExports]:
        """Returns the first pending exports, or the oldest dead ones, and changes nothing.

        Each result has a `bucket` and its `rows`, an Arrow batch with the columns `sequence`,
        `__gone`, the keys and the values. There are at most `limit` rows in all.
        """
        return control.peek(self._instance, self.name, bucket, limit, dead)

    def drain(self, seconds: float | None = None) -> DrainReport:
        """Captures and exports what the queue has now, in this process.

        Calls failed buckets at once. With `seconds`, calls are repeated for about that time while
        the receiver is unavailable. Exports remain if it is, another worker has them, or the queue
        is paused. The result has the numbers of `exports` and `dead` exports, and `problems`.
        """
        return drain_now(self._instance, self.name, seconds)

    def pause(self) -> None:
        """Pauses the queue: its exporter gets no more exports. They stay pending."""
        control.pause_queue(self._instance, self.name)

    def resume(self) -> int:
        """Resumes a paused queue. Returns the number of failed buckets, which are due at once."""
        return control.resume_queue(self._instance, self.name)

    def redrive(self) -> int:
        """Makes dead letters pending exports again. Returns the number of exports."""
        return control.redrive(self._instance, self.name)

    def delete(self, discard: bool = False) -> None:
        """Deletes the queue. The receiver keeps what it has.

        Raises `InvalidRequestError` if exports are pending, dead or not captured, unless
        `discard` loses them.
        """
        delete_queue(self._instance, self.name, discard)


@check_argument_types
class InstanceExportQueues:
    """The methods of `Instance` that create and find export queues."""

    _ports: Ports

    @checks_own_arguments
    @takes(NewQueue)
    def create_export_queue(self, new: NewQueue) -> ExportQueue:
        """Creates an export queue on a table, which sends changes to another system.

        `on` is `"transaction"`, for exports that `Transaction.export` attaches; `"ingest"`, for
        changes of rows; `"snapshot"`, for versions of a snapshot table; or `"compaction"`, for
        files that compactions wrote. `keys` and `values` are names of fields of the table, or for
        `"transaction"` also `NAME:TYPE`. Key fields are never null.

        `exporter` is the receiver, such as `"table:copy"`, `"postgres://user@host/db?table=t"`,
        `"webhook:https://host/path"`, or `"python:NAME"` of a wheel; for a local instance also a
        class, or `"python:module:class"`, of a module that the workers can import. `options` are
        its options, and `password` a reference: `env:NAME`, `file:PATH` or `secret:NAME`. A call
        that lasts longer than `timeout_seconds` has failed; exports that are refused in `tries`
        calls become dead letters. `existing_rows` exports the rows of now too. `replace` gives an
        existing queue another exporter and the options that are given.

        Raises `InvalidRequestError` for arguments that are not valid, `NotFoundError` if there is
        no such table, and `ConflictError` if the name is taken.
        """
        create_queue(self._ports, new)
        return ExportQueue(self._ports, new.name)

    def export_queue(self, name: str) -> ExportQueue:
        """Returns the export queue of this name. Raises `NotFoundError` if it does not exist."""
        open_export_store(self._ports).find(name)
        return ExportQueue(self._ports, name)

    def export_queues(self) -> list[QueueStatus]:
        """Returns the state of each export queue, by name.

        Queues whose creation or deletion has not ended are left out.
        """
        statuses = []
        for queue in open_export_store(self._ports).list():
            with suppress(NotFoundError):
                statuses.append(queue_status(self._ports, queue.name))
        return statuses
