"""The open state stores of a process: a bounded number, the least recently used closed first.

An open state has a writing connection with two descriptors (the database and its write-ahead log),
two more for each idle reading connection, one for the shared memory of all of them, one for the
lock, and two for the pipe and the socket of commits that processes share. SQLite reuses descriptors
of the database that closed connections had, and closes them with the last connection. A state store
is in use while anything but this cache refers to it, such as an open read, a commit or a renewed
hold; it is not closed then.
"""

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sleeper.statestore.database import IDLE_READERS_MAX, Database
from sleeper.statestore.store import StateStore
from sleeper.storage.descriptors import descriptor_limit
from sleeper.tables import TableId

_IDLE_SECONDS = 60.0
# Each has about 200 KiB of memory.
_STATES_MAX = 100
_DESCRIPTORS_PER_STATE = 6 + 2 * IDLE_READERS_MAX
# Data files, connections, pipes and the instance's databases have the others.
_PART_OF_DESCRIPTORS = 0.4


def open_states_max() -> int:
    """Returns how many states this process keeps open."""
    affordable = int(descriptor_limit() * _PART_OF_DESCRIPTORS) // _DESCRIPTORS_PER_STATE
    return max(1, min(_STATES_MAX, affordable))


@dataclass(slots=True)
class _OpenState:
    """An open state. `identity` is that of its file when it was opened."""

    database: Database
    store: StateStore
    identity: Hashable
    used_at: float


class OpenStates:
    """The state stores of tables, each opened once. Safe for threads.

    `open_state` opens one. `identify` returns the identity of a table's file, or None if it is
    unknown; a store that was opened with another identity is replaced.
    """

    def __init__(
        self,
        open_state: Callable[[TableId], StateStore],
        identify: Callable[[TableId], Hashable] = lambda _: None,
    ) -> None:
        self._open_state = open_state
        self._identify = identify
        self._states_max = open_states_max()
        self._lock = threading.Lock()
        # Least recently used first.
        self._open: OrderedDict[TableId, _OpenState] = OrderedDict()

    def get(self, table_id: TableId) -> StateStore:
        """Returns the table's state store."""
        replaced, unused = None, list[Database]()
        try:
            with self._lock:
                identity, opened = self._identify(table_id), self._open.get(table_id)
                if opened is not None and identity not in (None, opened.identity):
                    replaced, opened = self._open.pop(table_id), None
                if opened is None:
                    store = self._open_state(table_id)
                    opened = _OpenState(
                        store.database, store, identity or self._identify(table_id), 0.0
                    )
                    self._open[table_id] = opened
                opened.used_at = time.monotonic()
                self._open.move_to_end(table_id)
                unused = self._take_unused(opened.used_at - _IDLE_SECONDS)
                return opened.store
        finally:
            if replaced is not None:
                replaced.store.close()
            for database in unused:
                database.close()

    def table_ids(self) -> list[TableId]:
        """Returns the tables whose states are open, the least recently used first."""
        with self._lock:
            return list(self._open)

    def close_unused(self, table_id: TableId) -> bool:
        """Closes the table's state unless it is in use. Returns whether it is closed."""
        with self._lock:
            database = self._take(table_id)
            is_open = table_id in self._open
        if database is not None:
            database.close()
        return not is_open

    def forget(self, table_id: TableId) -> None:
        """Closes the state of a deleted table, even one in use."""
        with self._lock:
            opened = self._open.pop(table_id, None)
        if opened is not None:
            opened.store.close()

    def close(self) -> None:
        """Closes all states."""
        for table_id in self.table_ids():
            self.forget(table_id)

    def _take_unused(self, before: float) -> list[Database]:
        """Takes states that are too many or were not used since then. The caller closes them."""
        taken = []
        for table_id in list(self._open)[:-1]:
            is_idle = self._open[table_id].used_at < before
            if not is_idle and len(self._open) <= self._states_max:
                break
            database = self._take(table_id)
            if database is not None:
                taken.append(database)
        return taken

    def _take(self, table_id: TableId) -> Database | None:
        """Takes the state out of this cache and returns its database, None if it is in use."""
        opened = self._open.get(table_id)
        if opened is None:
            return None
        database, reference = opened.database, weakref.ref(opened.store)
        del opened.store
        store = reference()
        if store is not None:
            opened.store = store
            return None
        del self._open[table_id]
        return database
