"""Copies of tables' states, which follow their logs on this process's own disk.

A copy is opened from what an earlier process left, or from the newest snapshot, and brought
up to date from the log whenever it is read. Those that were not used for longest go when
there are too many, or too many bytes of them; one that somebody still has stays.
"""

import logging
import shutil
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from obstore.store import ObjectStore

from sleeper.clock import Clock
from sleeper.errors import DataError, UnavailableError
from sleeper.statestore.database import Database
from sleeper.statestore.log import TransactionLog
from sleeper.statestore.snapshots import SNAPSHOT_FOLDER_PREFIX, SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.tables.table_ref import TableId

logger = logging.getLogger(__name__)

_STATE_FILE = "state.db"
_LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much of copies is kept, besides the one that is opened."""

    copies_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class _Copy:
    database: Database
    store: StateStore


class StateCopies:
    """Opens each table's state store once. Safe for threads."""

    def __init__(
        self,
        folder: Callable[[], Path],
        open_log: Callable[[TableId], TransactionLog],
        objects: ObjectStore,
        limits: Callable[[], CopyLimits],
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._open_log = open_log
        self._objects = objects
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[TableId, _Copy] = OrderedDict()
        self._looked_at = 0.0

    def get(self, table_id: TableId) -> StateStore:
        """The table's state store; for a table that has no log yet an empty one."""
        with self._lock:
            is_open = table_id in self._open
            # Those that are open grow.
            if not is_open or time.monotonic() - self._looked_at >= _LOOK_SECONDS:
                self._make_room(table_id)
            if not is_open:
                self._open[table_id] = self._open_copy(table_id)
            self._open.move_to_end(table_id)
            return self._open[table_id].store

    def forget(self, table_id: TableId) -> None:
        """Deletes the copy, of a table that is gone."""
        with self._lock:
            copy = self._open.pop(table_id, None)
            if copy is not None:
                copy.store.close()
            _delete_copy(self._folder() / table_id)

    def close(self) -> None:
        """Closes the copies, and keeps them for the next process."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].store.close()

    def _open_copy(self, table_id: TableId) -> _Copy:
        folder = self._folder() / table_id
        try:
            return self._open_in(folder, table_id)
        except DataError as error:
            # What an earlier process left: of another version perhaps, or damaged.
            logger.warning("copy of the state made anew: %s", error, extra={"table": table_id})
            _delete_copy(folder)
            return self._open_in(folder, table_id)

    def _open_in(self, folder: Path, table_id: TableId) -> _Copy:
        try:
            folder.mkdir(exist_ok=True)
            for left in folder.glob(f"{SNAPSHOT_FOLDER_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise UnavailableError(f"{folder}: {error}") from error
        # A copy that lost its last changes is brought up to date again.
        database = Database(folder / _STATE_FILE, durable=False)
        snapshots = SnapshotStore(self._objects, table_id)
        try:
            log = self._open_log(table_id)
            return _Copy(database, StateStore(database, log, self._clock, snapshots))
        except BaseException:
            database.close()
            raise

    def _make_room(self, for_table: TableId) -> None:
        """Removes copies, from the one that was not used for longest on, until few are left."""
        self._looked_at = time.monotonic()
        limits = self._limits()
        copies = [file.parent for file in self._folder().glob(f"*/{_STATE_FILE}")]
        sizes = {copy.name: _bytes_of(copy) for copy in copies}
        sizes.pop(for_table, None)
        in_use = [name for name in self._open if name != for_table]
        left_behind = [name for name in sizes if name not in self._open]
        left_behind.sort(key=lambda name: (self._folder() / name / _STATE_FILE).stat().st_mtime)
        count, total = len(sizes), sum(sizes.values())
        for name in [*left_behind, *in_use]:
            if count < limits.copies_max and total <= limits.bytes_max:
                return
            if self._remove(TableId(name)):
                count, total = count - 1, total - sizes.get(name, 0)

    def _remove(self, table_id: TableId) -> bool:
        """False if somebody has the state store: then it stays open."""
        copy = self._open.pop(table_id, None)
        if copy is not None:
            database, there = copy.database, weakref.ref(copy.store)
            del copy
            store = there()
            if store is not None:
                self._open[table_id] = _Copy(database, store)
                self._open.move_to_end(table_id, last=False)
                return False
            database.close()
        _delete_copy(self._folder() / table_id)
        return True


def _delete_copy(folder: Path) -> None:
    """Deletes the database before its write-ahead log, without which it may be torn."""
    with suppress(OSError):
        (folder / _STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
