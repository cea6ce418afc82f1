"""Copies of tables' states on local disk, which follow the tables' logs.

A copy starts from an earlier process's file or the newest snapshot, and each read applies the
log's new entries. The least recently used copies are deleted when there are too many, or too many
bytes of them; a copy whose state store is in use stays. Fewer may be open than there are.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from obstore.store import ObjectStore

from sleeper.clock import Clock
from sleeper.errors import DataError, UnavailableError
from sleeper.statestore.database import Database
from sleeper.statestore.holds import HoldStore
from sleeper.statestore.log import TransactionLog
from sleeper.statestore.open_states import OpenStates
from sleeper.statestore.snapshots import SNAPSHOT_FOLDER_PREFIX, SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.statestore.turns import Turns
from sleeper.tables import TableId

logger = logging.getLogger(__name__)

_STATE_FILE = "state.db"
_EVICTION_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits of the copies besides the one that is opened."""

    copies_max: int
    bytes_max: int


class StateCopies:
    """The state stores of tables, each opened once. Safe for threads."""

    def __init__(
        self,
        folder: Callable[[], Path],
        open_log: Callable[[TableId], TransactionLog],
        open_holds: Callable[[TableId], HoldStore],
        objects: ObjectStore,
        limits: Callable[[], CopyLimits],
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._open_log = open_log
        self._open_holds = open_holds
        self._objects = objects
        self._limits = limits
        self._clock = clock
        self._turns = Turns()
        self._lock = threading.Lock()
        self._states = OpenStates(self._open_copy)
        self._evicted_at = 0.0

    def get(self, table_id: TableId) -> StateStore:
        """Returns the table's state store, empty for a table without a log."""
        with self._lock:
            is_open = table_id in self._states.table_ids()
            # Open copies grow.
            if not is_open or time.monotonic() - self._evicted_at >= _EVICTION_SECONDS:
                self._evict(table_id)
            return self._states.get(table_id)

    def forget(self, table_id: TableId) -> None:
        """Deletes the copy of a deleted table."""
        with self._lock:
            self._states.forget(table_id)
            _delete_copy(self._folder() / table_id)

    def close(self) -> None:
        """Closes the copies. Their files stay for the next process."""
        with self._lock:
            self._states.close()

    def _open_copy(self, table_id: TableId) -> StateStore:
        folder = self._folder() / table_id
        try:
            return self._open_in(folder, table_id)
        except DataError as error:
            # An earlier process may have left a copy of another version or a damaged one.
            logger.warning("replaced the copy of the state: %s", error, extra={"table": table_id})
            _delete_copy(folder)
            return self._open_in(folder, table_id)

    def _open_in(self, folder: Path, table_id: TableId) -> StateStore:
        try:
            folder.mkdir(exist_ok=True)
            for left in folder.glob(f"{SNAPSHOT_FOLDER_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise UnavailableError(f"{folder}: {error}") from error
        # A crash may lose the last changes of a copy, which the log restores.
        database = Database(folder / _STATE_FILE, durable=False, turns=self._turns)
        snapshots = SnapshotStore(self._objects, table_id)
        try:
            log = self._open_log(table_id)
            holds = self._open_holds(table_id)
            return StateStore(database, log, holds, self._clock, snapshots, table_id=table_id)
        except BaseException:
            database.close()
            raise

    def _evict(self, for_table: TableId) -> None:
        """Removes the least recently used copies until the limits hold."""
        self._evicted_at = time.monotonic()
        limits = self._limits()
        copies = [file.parent for file in self._folder().glob(f"*/{_STATE_FILE}")]
        sizes = {copy.name: _folder_bytes(copy) for copy in copies}
        sizes.pop(for_table, None)
        opened = [name for name in self._states.table_ids() if name != for_table]
        closed = sizes.keys() - set(opened)
        by_time = sorted(
            closed, key=lambda name: (self._folder() / name / _STATE_FILE).stat().st_mtime
        )
        count, total = len(sizes), sum(sizes.values())
        for name in [*by_time, *opened]:
            if count < limits.copies_max and total <= limits.bytes_max:
                return
            if self._remove(TableId(name)):
                count, total = count - 1, total - sizes.get(name, 0)

    def _remove(self, table_id: TableId) -> bool:
        """Removes the copy; returns False if its state store is in use."""
        if not self._states.close_unused(table_id):
            return False
        _delete_copy(self._folder() / table_id)
        return True


def _delete_copy(folder: Path) -> None:
    """Deletes the database before its write-ahead log, which the database needs."""
    with suppress(OSError):
        (folder / _STATE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
