"""The query tracker in SQLite."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.clock import Clock, system_clock
from sleeper.errors import NotFoundError
from sleeper.jobs.query_tracker import (
    ERROR_CHARACTERS_MAX,
    WHOLE_QUERY,
    QueryIdTakenError,
    QueryPin,
    QueryState,
    QueryStatus,
    derive_query_state,
    format_rows_error,
)
from sleeper.local.database import InstanceDatabase

_TABLES = """
CREATE TABLE IF NOT EXISTS queries (
    query_id TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    table_id TEXT,
    version INTEGER,
    now_ms INTEGER,
    state TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    subqueries INTEGER,                 -- NULL until it is planned
    finished INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    row_count INTEGER NOT NULL DEFAULT 0,
    error TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS queries_by_creation ON queries (created_ms);
CREATE TABLE IF NOT EXISTS subqueries (
    query_id TEXT NOT NULL,
    sub_query_id TEXT NOT NULL,
    state TEXT NOT NULL,
    updated_ms INTEGER NOT NULL,
    row_count INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    PRIMARY KEY (query_id, sub_query_id)
) WITHOUT ROWID;
"""
_UNFINISHED = "state IN ('QUEUED', 'IN_PROGRESS')"
_SUBQUERY_KEY = "WHERE query_id = :query AND sub_query_id = :sub"


@dataclass(frozen=True, slots=True)
class LocalQueryTracker:
    """Implements the ports of `sleeper.jobs.query_tracker`."""

    database: InstanceDatabase
    clock: Clock = system_clock

    def __post_init__(self) -> None:
        self.database.create_missing("queries", _TABLES.split(";"))

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """See the port."""
        with self.database.write() as transaction:
            transaction.execute(
                "INSERT INTO queries (query_id, fingerprint, table_id, version, now_ms, state,"
                " created_ms, updated_ms) VALUES (:query, :fingerprint, :table, :version, :pinned,"
                " 'QUEUED', :now, :now) ON CONFLICT DO NOTHING",
                self._values(
                    query_id,
                    fingerprint=pin.fingerprint,
                    table=pin.table_id,
                    version=pin.version,
                    pinned=pin.now_ms,
                ),
            )
            row = _query_row(transaction, query_id)
        if row["fingerprint"] != pin.fingerprint:
            raise QueryIdTakenError(query_id)
        if QueryState(row["state"]).is_finished:
            return None
        return QueryPin(row["fingerprint"], row["table_id"], row["version"], row["now_ms"])

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """See the port."""
        now = self.clock()
        with self.database.write() as transaction:
            transaction.executemany(
                "INSERT INTO subqueries (query_id, sub_query_id, state, updated_ms)"
                " VALUES (?, ?, 'QUEUED', ?) ON CONFLICT DO NOTHING",
                [(query_id, each, now) for each in sub_query_ids],
            )
            state = QueryState.IN_PROGRESS if sub_query_ids else QueryState.COMPLETED
            transaction.execute(
                "UPDATE queries SET state = :state, subqueries = :count, updated_ms = :now"
                f" WHERE query_id = :query AND {_UNFINISHED}",
                self._values(query_id, state=state.value, count=len(sub_query_ids)),
            )

    def start(self, query_id: str, sub_query_id: str) -> bool:
        """See the port."""
        values = self._values(query_id, sub=sub_query_id)
        with self.database.write() as transaction:
            _add_subquery(transaction, values)
            changed = transaction.execute(
                "UPDATE subqueries SET state = 'IN_PROGRESS', updated_ms = :now"
                f" {_SUBQUERY_KEY} AND {_UNFINISHED}",
                values,
            )
        return changed.rowcount == 1

    def finish(
        self,
        query_id: str,
        sub_query_id: str,
        rows: int,
        error: str | None = None,
        rows_max: int = 0,
    ) -> QueryStatus | None:
        """See the port."""
        with self.database.write() as transaction:
            before = _query_row(transaction, query_id)
            room = rows_max - before["row_count"] if before is not None and rows_max else rows
            if error is None and rows > room:
                rows, error = 0, format_rows_error(rows_max)
            state = QueryState.COMPLETED if error is None else QueryState.FAILED
            values = self._values(
                query_id, sub=sub_query_id, rows=rows, error=_cut(error), state=state.value
            )
            _add_subquery(transaction, values)
            ended = transaction.execute(
                "UPDATE subqueries SET state = :state, row_count = :rows, error = :error,"
                f" updated_ms = :now {_SUBQUERY_KEY} AND {_UNFINISHED}",
                values,
            )
            if ended.rowcount:
                transaction.execute(
                    "UPDATE queries SET finished = finished + 1, row_count = row_count + :rows,"
                    " failed = failed + (:error IS NOT NULL), error = coalesce(error, :error),"
                    " updated_ms = :now WHERE query_id = :query",
                    values,
                )
            return self._end(transaction, query_id)

    def fail(self, query_id: str, fingerprint: str, error: str) -> QueryStatus | None:
        """See the port."""
        values = self._values(query_id, fingerprint=fingerprint, error=_cut(error))
        with self.database.write() as transaction:
            changed = transaction.execute(
                "INSERT INTO queries (query_id, fingerprint, state, created_ms, updated_ms, error)"
                " VALUES (:query, :fingerprint, 'FAILED', :now, :now, :error)"
                " ON CONFLICT DO UPDATE SET state = 'FAILED', updated_ms = :now, error = :error"
                f" WHERE fingerprint = :fingerprint AND {_UNFINISHED}",
                values,
            )
            row = _query_row(transaction, query_id)
        if row["fingerprint"] != fingerprint:
            raise QueryIdTakenError(query_id)
        return _status(row) if changed.rowcount else None

    def query(self, query_id: str) -> QueryStatus:
        """See the port."""
        rows = self.database.read("SELECT * FROM queries WHERE query_id = ?", (query_id,))
        if not rows:
            raise NotFoundError(f"query {query_id!r} does not exist")
        return _status(rows[0])

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """See the port."""
        rows = self.database.read(
            "SELECT * FROM subqueries WHERE query_id = ? ORDER BY sub_query_id", (query_id,)
        )
        return tuple(_status(row) for row in rows)

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """See the port."""
        rows = self.database.read(
            "SELECT * FROM queries ORDER BY created_ms DESC, query_id LIMIT ?", (limit,)
        )
        return tuple(_status(row) for row in rows)

    def remove_before(self, time_ms: int) -> int:
        """See the port."""
        with self.database.write() as transaction:
            transaction.execute(
                "DELETE FROM subqueries WHERE query_id IN"
                " (SELECT query_id FROM queries WHERE created_ms < ?)",
                (time_ms,),
            )
            return transaction.execute(
                "DELETE FROM queries WHERE created_ms < ?", (time_ms,)
            ).rowcount

    def _end(self, transaction: sqlite3.Connection, query_id: str) -> QueryStatus | None:
        """Ends the query if it is not finished and all its subqueries are."""
        row = _query_row(transaction, query_id)
        if row is None or row["subqueries"] is None or QueryState(row["state"]).is_finished:
            return None
        state = derive_query_state(row["subqueries"], row["finished"], row["failed"])
        if not state.is_finished:
            return None
        transaction.execute(
            "UPDATE queries SET state = :state WHERE query_id = :query",
            self._values(query_id, state=state.value),
        )
        return _status(_query_row(transaction, query_id))

    def _values(self, query_id: str, **more: Any) -> dict[str, Any]:
        return {"query": query_id, "now": self.clock(), **more}


def _add_subquery(transaction: sqlite3.Connection, values: dict[str, Any]) -> None:
    transaction.execute(
        "INSERT INTO subqueries (query_id, sub_query_id, state, updated_ms)"
        " VALUES (:query, :sub, 'QUEUED', :now) ON CONFLICT DO NOTHING",
        values,
    )


def _query_row(transaction: sqlite3.Connection, query_id: str) -> Any:
    return transaction.execute("SELECT * FROM queries WHERE query_id = ?", (query_id,)).fetchone()


def _status(row: sqlite3.Row) -> QueryStatus:
    names = row.keys()
    return QueryStatus(
        query_id=row["query_id"],
        sub_query_id=row["sub_query_id"] if "sub_query_id" in names else WHOLE_QUERY,
        state=QueryState(row["state"]),
        row_count=row["row_count"],
        updated_ms=row["updated_ms"],
        error=row["error"],
        table_id=row["table_id"] if "table_id" in names else None,
    )


def _cut(error: str | None) -> str | None:
    return None if error is None else error[:ERROR_CHARACTERS_MAX]
