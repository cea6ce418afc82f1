"""The holds of the tables of a local instance, in a database beside the states.

A process that may not write in the instance's folder, or that opened it read-only, writes its holds
into another database, in the folder `reader-holds`, if the owner of the instance made that and lets
it. Collectors read both.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold
from sleeper.tables import TableId

HOLDS_FILE = "holds.db"
READERS_FOLDER = "reader-holds"

_FIND = "SELECT 1 FROM sqlite_master WHERE name = 'holds'"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS holds (table_id TEXT NOT NULL, id TEXT NOT NULL,"
    " owner TEXT NOT NULL, version INTEGER NOT NULL, expiry_ms INTEGER NOT NULL,"
    " is_floor INTEGER NOT NULL, PRIMARY KEY (table_id, id)) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class LocalHolds:
    """Implements `sleeper.statestore.holds.HoldStore`. The first hold creates the file."""

    database: Database
    table_id: TableId

    @property
    def accepts_writes(self) -> bool:
        path = self.database.path
        is_allowed = os.access(path.parent, os.W_OK) and not self.database.read_only
        return is_allowed and (os.access(path, os.W_OK) or not path.exists())

    def all(self) -> Sequence[Hold]:
        if not self.database.path.exists():
            return []
        with self.database.reading() as connection:
            if not connection.execute(_FIND).fetchone():
                return []
            rows = connection.execute(
                "SELECT id, owner, version, expiry_ms, is_floor FROM holds WHERE table_id = ?"
                " ORDER BY id",
                (self.table_id,),
            )
            return [Hold(i, owner, number, at, bool(floor)) for i, owner, number, at, floor in rows]

    def put(self, hold: Hold) -> None:
        with self.database.writing() as connection:
            connection.execute(_CREATE)
            connection.execute(
                "INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?, ?, ?)",
                (self.table_id, hold.id, hold.owner, hold.version, hold.expiry_ms, hold.is_floor),
            )

    def extend(self, hold_id: str, expiry_ms: int) -> bool:
        with self.database.writing() as connection:
            connection.execute(_CREATE)
            changed = connection.execute(
                "UPDATE holds SET expiry_ms = ? WHERE table_id = ? AND id = ?",
                (expiry_ms, self.table_id, hold_id),
            )
            return changed.rowcount == 1

    def forget(self, expiry_max_ms: int) -> None:
        if not self.database.path.exists():
            return
        with self.database.writing() as connection:
            connection.execute(_CREATE)
            connection.execute(
                "DELETE FROM holds WHERE table_id = ? AND expiry_ms <= ?",
                (self.table_id, expiry_max_ms),
            )

    def delete(self, hold_ids: Sequence[str]) -> None:
        if not self.database.path.exists():
            return
        with self.database.writing() as connection:
            connection.execute(_CREATE)
            connection.executemany(
                "DELETE FROM holds WHERE table_id = ? AND id = ?",
                [(self.table_id, hold_id) for hold_id in hold_ids],
            )


class HoldFiles:
    """The databases of holds of an instance. Those of readers are opened if their folder exists."""

    def __init__(self, folder: Path, read_only: bool) -> None:
        self._own = Database(folder / HOLDS_FILE, read_only=read_only)
        self._readers = Database(folder / READERS_FOLDER / HOLDS_FILE)

    def of_table(self, table_id: TableId) -> "SharedHolds":
        """Returns the holds of a table."""
        return SharedHolds(LocalHolds(self._own, table_id), LocalHolds(self._readers, table_id))

    def close(self) -> None:
        """Closes the databases. Later uses reopen them."""
        self._own.close()
        self._readers.close()


@dataclass(frozen=True, slots=True)
class SharedHolds:
    """The holds of a table in both databases. Implements `sleeper.statestore.holds.HoldStore`."""

    own: LocalHolds
    readers: LocalHolds

    @property
    def accepts_writes(self) -> bool:
        return self.own.accepts_writes or self.readers.accepts_writes

    def all(self) -> Sequence[Hold]:
        return [*self.own.all(), *self.readers.all()]

    def put(self, hold: Hold) -> None:
        if self.own.accepts_writes or not self.readers.accepts_writes:
            self.own.put(hold)
            return
        _create_shared(self.readers.database)
        self.readers.put(hold)

    def extend(self, hold_id: str, expiry_ms: int) -> bool:
        store = self.readers if self._is_of_reader(hold_id) else self.own
        return store.extend(hold_id, expiry_ms)

    def delete(self, hold_ids: Sequence[str]) -> None:
        of_readers = [each for each in hold_ids if self._is_of_reader(each)]
        if of_readers:
            self.readers.delete(of_readers)
        if len(of_readers) < len(hold_ids):
            self.own.delete([each for each in hold_ids if each not in of_readers])

    def forget(self, expiry_max_ms: int) -> None:
        self.own.forget(expiry_max_ms)
        if self.readers.accepts_writes:
            self.readers.forget(expiry_max_ms)

    def _is_of_reader(self, hold_id: str) -> bool:
        return any(hold.id == hold_id for hold in self.readers.all())


def _create_shared(database: Database) -> None:
    """Creates the files of readers for whoever may write in their folder, whatever the umask."""
    mode = database.path.parent.stat().st_mode & 0o666
    for path in (database.path, database.lock_path):
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
            path.chmod(mode)
