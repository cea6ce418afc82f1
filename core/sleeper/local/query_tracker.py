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
    QueryPin,
    QueryRun,
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
    error TEXT,
    run TEXT NOT NULL DEFAULT '',
    messages TEXT NOT NULL DEFAULT ''   -- those of all runs of the id, separated by spaces
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
_RUN_COLUMNS = ("run", "messages")
_UNFINISHED = "state IN ('QUEUED', 'IN_PROGRESS')"
_SUBQUERY_KEY = "WHERE query_id = :query AND sub_query_id = :sub"


@dataclass(frozen=True, slots=True)
class LocalQueryTracker:
    """Implements the ports of `sleeper.jobs.query_tracker`."""

    database: InstanceDatabase
    clock: Clock = system_clock

    def __post_init__(self) -> None:
        self.database.create_missing("queries", _TABLES.split(";"))
        if not self.database.read_only and not self._has_runs():
            with self.database.write() as transaction:
                _add_run_columns(transaction)

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        with self.database.write() as transaction:
            stored = _find_run(transaction, query_id)
            if stored is not None and stored.is_over_for(pin.fingerprint, pin.run):
                return None
            self._open_run(transaction, query_id, stored, pin.fingerprint, pin.run)
            transaction.execute(
                "UPDATE queries SET table_id = :table, version = :version, now_ms = :pinned"
                " WHERE query_id = :query AND version IS NULL AND state = 'QUEUED'",
                self._values(query_id, table=pin.table_id, version=pin.version, pinned=pin.now_ms),
            )
            row = _query_row(transaction, query_id)
        return QueryPin(
            row["fingerprint"],
            row["table_id"],
            row["version"],
            row["now_ms"],
            row["run"],
            _run_of(row).replaces,
        )

    def _open_run(
        self,
        transaction: sqlite3.Connection,
        query_id: str,
        stored: QueryRun | None,
        fingerprint: str,
        message: str,
    ) -> None:
        """Adds the message to the query, or replaces the query by a queued one of the message."""
        if stored is not None and not stored.starts_over(fingerprint):
            if not stored.knows(message):
                transaction.execute(
                    "UPDATE queries SET messages = :messages WHERE query_id = :query",
                    self._values(query_id, messages=stored.add(message)),
                )
            return
        transaction.execute("DELETE FROM subqueries WHERE query_id = ?", (query_id,))
        transaction.execute("DELETE FROM queries WHERE query_id = ?", (query_id,))
        transaction.execute(
            "INSERT INTO queries (query_id, fingerprint, state, created_ms, updated_ms, run,"
            " messages) VALUES (:query, :fingerprint, 'QUEUED', :now, :now, :run, :messages)",
            self._values(
                query_id,
                fingerprint=fingerprint,
                run=message,
                messages=message if stored is None else stored.add(message),
            ),
        )

    def is_newest(self, query_id: str, run: str) -> bool:
        rows = self.database.read("SELECT run FROM queries WHERE query_id = ?", (query_id,))
        return all(row["run"] == run for row in rows)

    def plan(self, query_id: str, sub_query_ids: Sequence[str], run: str = "") -> None:
        now = self.clock()
        with self.database.write() as transaction:
            if _is_replaced(transaction, query_id, run):
                return
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

    def start(self, query_id: str, sub_query_id: str, run: str = "") -> bool:
        values = self._values(query_id, sub=sub_query_id)
        with self.database.write() as transaction:
            if _is_replaced(transaction, query_id, run):
                return False
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
        run: str = "",
    ) -> QueryStatus | None:
        with self.database.write() as transaction:
            if _is_replaced(transaction, query_id, run):
                return None
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

    def fail(
        self, query_id: str, fingerprint: str, error: str, run: str = ""
    ) -> QueryStatus | None:
        with self.database.write() as transaction:
            stored = _find_run(transaction, query_id)
            if stored is not None and stored.is_over_for(fingerprint, run):
                return None
            self._open_run(transaction, query_id, stored, fingerprint, run)
            transaction.execute(
                "UPDATE queries SET state = 'FAILED', updated_ms = :now, error = :error"
                " WHERE query_id = :query",
                self._values(query_id, error=_cut(error)),
            )
            return _status(_query_row(transaction, query_id))

    def query(self, query_id: str) -> QueryStatus:
        rows = self.database.read("SELECT * FROM queries WHERE query_id = ?", (query_id,))
        if not rows:
            raise NotFoundError(f"query {query_id!r} does not exist")
        return _status(rows[0])

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        rows = self.database.read(
            "SELECT * FROM subqueries WHERE query_id = ? ORDER BY sub_query_id", (query_id,)
        )
        return tuple(_status(row) for row in rows)

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        rows = self.database.read(
            "SELECT * FROM queries ORDER BY created_ms DESC, query_id LIMIT ?", (limit,)
        )
        return tuple(_status(row) for row in rows)

    def remove_before(self, time_ms: int) -> int:
        with self.database.write() as transaction:
            transaction.execute(
                "DELETE FROM subqueries WHERE query_id IN"
                " (SELECT query_id FROM queries WHERE created_ms < ?)",
                (time_ms,),
            )
            return transaction.execute(
                "DELETE FROM queries WHERE created_ms < ?", (time_ms,)
            ).rowcount

    def _has_runs(self) -> bool:
        columns = {row["name"] for row in self.database.read("PRAGMA table_info (queries)")}
        return columns >= set(_RUN_COLUMNS)

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


def _add_run_columns(transaction: sqlite3.Connection) -> None:
    """Adds the columns of runs, unless the table has them."""
    present = {row["name"] for row in transaction.execute("PRAGMA table_info (queries)")}
    for name in _RUN_COLUMNS:
        if name not in present:
            transaction.execute(f"ALTER TABLE queries ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")


def _find_run(transaction: sqlite3.Connection, query_id: str) -> QueryRun | None:
    row = _query_row(transaction, query_id)
    return None if row is None else _run_of(row)


def _run_of(row: sqlite3.Row) -> QueryRun:
    state = QueryState(row["state"])
    return QueryRun(row["query_id"], row["fingerprint"], row["run"], row["messages"], state)


def _is_replaced(transaction: sqlite3.Connection, query_id: str, run: str) -> bool:
    row = _query_row(transaction, query_id)
    return row is not None and row["run"] != run


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
