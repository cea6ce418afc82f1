"""Finds a queue by its name: its registration, its table and its definition."""

import time
from dataclasses import dataclass, field

from sleeper.errors import NotFoundError
from sleeper.export_queue.definition import ExportQueue, parse_definition
from sleeper.export_queue.store import RegisteredQueue, open_export_store
from sleeper.export_queue.table_queries import StoredQueue, queues_in
from sleeper.instance import Instance, OpenTable
from sleeper.statestore.reading.table_state import TableState
from sleeper.tables import TableId, TableRef, find_table

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A queue. `number` is that of the newest transaction of its table."""

    registered: RegisteredQueue
    table: OpenTable
    definition: ExportQueue
    number: int

    @property
    def generation(self) -> int:
        """The number of the transaction that created it."""
        return self.registered.generation

    @property
    def lag(self) -> int:
        """The number of transactions that are not captured."""
        return max(0, self.number - self.registered.position.number)


@dataclass(slots=True)
class QueueWatch:
    """Looks now and then whether a queue has changed while it is drained. For any thread."""

    found: FoundQueue
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
        found = self.found
        with found.table.state.reading() as state:
            stored = queues_in(state).find(found.definition.name)
        now = (stored.generation, parse_definition(stored.definition))
        return now != (found.generation, found.definition)


def find_queue(instance: Instance, name: str) -> FoundQueue:
    """Returns a queue. NotFoundError if its creation or deletion has not ended."""
    registered = open_export_store(instance).find(name)
    ref = find_table(instance.tables.index, None, TableId(registered.table_id))
    table = OpenTable(instance, ref)
    with table.state.reading() as state:
        stored = find_stored(registered, ref, state)
        number = state.number
    return FoundQueue(registered, table, parse_definition(stored.definition), number)


def find_stored(registered: RegisteredQueue, table: TableRef, state: TableState) -> StoredQueue:
    """Returns the queue as its table has it. NotFoundError as of `find_queue`."""
    stored = queues_in(state).find_or_none(registered.name)
    what = f"of export queue {registered.name!r} of table {table.name!r} has not ended"
    if not registered.generation:
        raise NotFoundError(f"the creation {what}: create it again")
    if stored is None or stored.generation != registered.generation:
        raise NotFoundError(f"the deletion {what}: delete it again, or start `sleeper run`")
    return stored
