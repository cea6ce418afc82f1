"""The holds of the tables of a local instance, in a database beside the states."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold
from sleeper.tables import TableId

HOLDS_FILE = "holds.db"

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
