"""Queues as the storage has them registered, and as the states of their tables have them.

The log of its table decides whether a queue exists. After a deletion, the queue's holds are
released, and its exports and its registration are removed from the storage: other processes do
that if the one that deletes it dies.
"""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.export_queue.definition import ExportQueue, ExportSource, parse_definition
from sleeper.export_queue.store import Position, RegisteredQueue, open_export_store
from sleeper.export_queue.table_queries import StoredQueue, find_uncaptured, queues_in
from sleeper.export_queue.version_hold import QueueHold, find_holds
from sleeper.instance import Instance, OpenTable
from sleeper.query.hold import release_hold
from sleeper.statestore.reading.table_state import TableState
from sleeper.tables import TableId, TableRef, find_table
from sleeper.user_code.wheel import CodeKind

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A queue. `number` is that of the newest transaction of its table.

    `lag` is how many transactions it has to capture. Without any it may still be behind, and then
    passes the rest, so that the table can forget them.
    """

    registered: RegisteredQueue
    table: OpenTable
    definition: ExportQueue
    number: int
    lag: int

    @property
    def generation(self) -> int:
        """The number of the transaction that created it."""
        return self.registered.generation

    @property
    def is_behind(self) -> bool:
        """Whether its position is before the newest transaction, of whatever kind."""
        return self.registered.position.number < self.number


@dataclass(slots=True)
class QueueWatch:
    """Looks now and then whether a queue has changed while it is drained. For any thread."""

    open_queue: OpenQueue
    _looked_at: float = field(default_factory=time.monotonic)
    _has_changed: bool = False

    def has_changed(self) -> bool:
        """Returns whether the queue has another definition by now, such as another exporter.

        NotFoundError if it was deleted.
        """
        now = time.monotonic()
        if not self._has_changed and now - self._looked_at > _LOOK_SECONDS:
            self._looked_at = now
            self._has_changed = self._look()
        return self._has_changed

    def _look(self) -> bool:
        open_queue = self.open_queue
        with open_queue.table.state.reading() as state:
            stored = queues_in(state).find(open_queue.definition.name)
        now = (stored.generation, parse_definition(stored.definition))
        return now != (open_queue.generation, open_queue.definition)


def find_queue(instance: Instance, name: str) -> OpenQueue:
    """Returns a queue. NotFoundError if its creation or deletion has not ended."""
    registered = open_export_store(instance).find(name)
    ref = find_table(instance.tables.index, None, TableId(registered.table_id))
    table = OpenTable(instance, ref)
    with table.state.reading() as state:
        stored = find_stored(registered, ref, state)
        number = state.number
        lag = find_uncaptured(state, stored, registered.position.number).transactions
    return OpenQueue(registered, table, parse_definition(stored.definition), number, lag)


def find_stored(registered: RegisteredQueue, table: TableRef, state: TableState) -> StoredQueue:
    """Returns the queue as its table has it. NotFoundError as of `find_queue`."""
    stored = queues_in(state).find_or_none(registered.name)
    what = f"of export queue {registered.name!r} of table {table.name!r} has not ended"
    if not registered.generation:
        raise NotFoundError(f"the creation {what}: create it again")
    if stored is None or stored.generation != registered.generation:
        raise NotFoundError(f"the deletion {what}: delete it again, or start `sleeper run`")
    return stored


def begin_queue(
    table: OpenTable, registered: RegisteredQueue, stored: StoredQueue, start: Position
) -> None:
    """Begins a registered queue at a position. Does nothing if it has begun.

    The queue compares the keys of a snapshot table's next version with those that the table has at
    the start, so it holds that version from now on: it may expire before the first capture.
    """
    if registered.generation:
        return
    if ExportSource(stored.source) is ExportSource.SNAPSHOT:
        number = max(start.number, stored.generation)
        QueueHold(table, stored.name).keep(number)
    store = open_export_store(table.instance)
    store.begin(stored.name, stored.generation, start)


def finish_deletion(instance: Instance, queue: RegisteredQueue) -> bool:
    """Removes what is left of a queue that its table does not have. False if the table has it.

    It changes nothing if the table is not active: it may be restored, or brought back.
    """
    try:
        table = find_table(instance.tables.index, None, TableId(queue.table_id))
    except NotFoundError:
        return False
    store = instance.tables.state(table.id)
    with store.reading() as state:
        stored = queues_in(state).find_or_none(queue.name)
        if stored is not None or state.number < queue.generation:
            return False
    for hold_id in find_holds(store, queue.name):
        release_hold(store, hold_id)
    open_export_store(instance).remove(queue.name, queue.generation)
    logger.info("deleted export queue %s", queue.name)
    return True


def finish_interrupted_deletion(instance: Instance, name: str) -> bool:
    """Finishes the deletion of a queue, if the table has deleted it. For background work."""
    queues = {each.name: each for each in open_export_store(instance).list()}
    # Generation 0 is a creation, whose queue the table does not have yet.
    return (
        name in queues and queues[name].generation > 0 and finish_deletion(instance, queues[name])
    )


def restore_queues(instance: Instance, table: TableRef) -> None:
    """Registers the export queues of a table, paused, at the restored version.

    ConflictError if the instance has other queues of these names.
    """
    opened = OpenTable(instance, table)
    with opened.state.reading() as state:
        queues = queues_in(state).all()
    store = open_export_store(instance)
    for queue in queues:
        start = Position(queue.start)
        present = store.register(queue.name, table.id)
        if present.generation and (present.generation, present.position) != (
            queue.generation,
            start,
        ):
            raise ConflictError(
                f"export queue {queue.name!r} of table {table.name!r} already exists in "
                f"{instance.where} (expected none: delete it, and restore again)"
            )
        store.pause(queue.name, True)
        begin_queue(opened, present, queue, start)


def check_deletion(table: OpenTable) -> None:
    """Raises InvalidRequestError if the table has export queues, whose exports might be lost."""
    with table.state.reading() as state:
        queues = [each.name for each in queues_in(state).all()]
    if queues:
        raise InvalidRequestError(
            f"table {table.ref.name!r} has export queues: {', '.join(queues)} (expected none: "
            "delete them first with `sleeper export-queue delete`)"
        )


def find_users(instance: Instance, kind: CodeKind, name: str) -> Iterator[str]:
    """Yields the queues that use an exporter of that name."""
    if kind is not CodeKind.EXPORTER:
        return
    for ref in instance.tables.index.list():
        with OpenTable(instance, ref).state.reading() as state:
            queues = queues_in(state).all()
        for queue in queues:
            if json.loads(queue.definition)["exporter"]["text"] == f"python:{name}":
                yield f"export queue {queue.name}"
