"""Export queues of an instance from Python."""

from contextlib import suppress

from sleeper.api.argument_types import check_argument_types, checks_own_arguments
from sleeper.errors import NotFoundError
from sleeper.export_queue.control import QueueStatus, queue_status
from sleeper.export_queue.export_queue import ExportQueue
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance as Ports
from sleeper.options import takes


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
        found = []
        for queue in open_export_store(self._ports).list():
            with suppress(NotFoundError):
                found.append(queue_status(self._ports, queue.name))
        return found
