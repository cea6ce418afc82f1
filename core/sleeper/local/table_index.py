"""The table index in SQLite."""

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, did_you_mean
from sleeper.local.database import InstanceDatabase
from sleeper.tables import TableId, TableRef, TableState, check_table_name

_NAMES_COMPARED_MAX = 100


@dataclass(frozen=True, slots=True)
class LocalTableIndex:
    """Implements `sleeper.tables.TableIndex`."""

    database: InstanceDatabase

    def create(self, table: TableRef) -> None:
        check_table_name(table.name)
        with self.database.write() as transaction:
            if transaction.execute("SELECT 1 FROM tables WHERE id = ?", (table.id,)).fetchone():
                raise ConflictError(f"a table of id {table.id} already exists")
            self._check_name_free(transaction, table)
            transaction.execute(
                "INSERT INTO tables (id, name, online, state) VALUES (?, ?, ?, ?)",
                (table.id, table.name, table.online, table.state.value),
            )
            if table.deleted_ms is not None:
                _set_deletion_time(transaction, table)

    def find(self, name: str) -> TableRef:
        rows = self.database.read(
            "SELECT * FROM tables WHERE name = ? AND state = 'active'", (name,)
        )
        if not rows:
            raise NotFoundError(
                f"no table is named {name!r}{did_you_mean(name, self._similar_names(name))}"
            )
        return _table(rows[0])

    def _similar_names(self, name: str) -> "list[str]":
        """Returns names that may be similar; a comparison of many names takes long."""
        rows = self.database.read(
            "SELECT name FROM tables WHERE state = 'active' ORDER BY substr(name, 1, 1) <> ?,"
            " abs(length(name) - ?), name LIMIT ?",
            (name[:1], len(name), _NAMES_COMPARED_MAX),
        )
        return [row["name"] for row in rows]

    def get(self, table_id: TableId) -> TableRef:
        rows = self.database.read("SELECT * FROM tables WHERE id = ?", (table_id,))
        if not rows:
            raise NotFoundError(f"no table has id {table_id!r}")
        return _table(rows[0])

    def get_all(self, table_ids: Collection[TableId]) -> Mapping[TableId, TableRef]:
        rows = self.database.read(
            "SELECT * FROM tables WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(table_ids)),),
        )
        return {table.id: table for table in map(_table, rows)}

    def list(self, state: TableState = TableState.ACTIVE) -> tuple[TableRef, ...]:
        rows = self.database.read(
            "SELECT * FROM tables WHERE state = ? ORDER BY name, id", (state.value,)
        )
        return tuple(_table(row) for row in rows)

    def replace(self, before: TableRef, after: TableRef) -> None:
        check_table_name(after.name)
        with self.database.write() as transaction:
            row = transaction.execute("SELECT * FROM tables WHERE id = ?", (before.id,)).fetchone()
            if row is None or _table(row) != before or after.id != before.id:
                raise ConflictError(f"table {before.name!r} was changed by another")
            self._check_name_free(transaction, after)
            transaction.execute(
                "UPDATE tables SET name = ?, online = ?, state = ? WHERE id = ?",
                (after.name, after.online, after.state.value, after.id),
            )
            if after.deleted_ms != before.deleted_ms:
                _set_deletion_time(transaction, after)

    def remove(self, table_id: TableId) -> None:
        with self.database.write() as transaction:
            row = transaction.execute("SELECT * FROM tables WHERE id = ?", (table_id,)).fetchone()
            if row is not None and _table(row).state is not TableState.DELETING:
                raise InvalidRequestError(f"table {row['name']!r} is not being deleted")
            transaction.execute("DELETE FROM tables WHERE id = ?", (table_id,))

    @staticmethod
    def _check_name_free(transaction: sqlite3.Connection, table: TableRef) -> None:
        taken = transaction.execute(
            "SELECT 1 FROM tables WHERE name = ? AND state = 'active' AND id <> ?",
            (table.name, table.id),
        ).fetchone()
        if taken and table.state is TableState.ACTIVE:
            raise ConflictError(f"table {table.name!r} already exists")


def _set_deletion_time(transaction: sqlite3.Connection, table: TableRef) -> None:
    """Adds its column first if it is missing: an older version reads a database without it."""
    columns = transaction.execute("PRAGMA table_info (tables)")
    if "deleted_ms" not in {row["name"] for row in columns}:
        transaction.execute("ALTER TABLE tables ADD COLUMN deleted_ms INTEGER")
    transaction.execute(
        "UPDATE tables SET deleted_ms = ? WHERE id = ?", (table.deleted_ms, table.id)
    )


def _table(row: sqlite3.Row) -> TableRef:
    return TableRef(
        id=TableId(row["id"]),
        name=row["name"],
        online=bool(row["online"]),
        state=TableState(row["state"]),
        deleted_ms=row["deleted_ms"] if "deleted_ms" in row.keys() else None,  # noqa: SIM118 # values
    )
