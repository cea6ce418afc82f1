"""The fold: the writes of transactions to the SQLite tables of a table's state (`fold_tables`)."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError, UnavailableError

SNAPSHOT_TABLE = "snapshot"
"""The type of a table that each load replaces."""

DAY_MS = 24 * 3600 * 1000
APPLIED_ID_DAYS = 30
"""Longer than any queue keeps a message, so no message outlives the memory of its id."""

HISTORY_KEPT_MIN = 1_000
_PRUNED_PER_ENTRY = 1_000


@dataclass(frozen=True, slots=True)
class Effect:
    """The job of a transaction, and the files, rows and bytes that it wrote or removed."""

    job: str | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AppliedId:
    """The transaction that used an id: kind, content hash and number."""

    id: str
    kind: str
    fingerprint: bytes
    number: int
    time_ms: int


class Fold:
    """One write transaction on the state.

    `number` is the last transaction applied, `time_ms` the time of the entry being folded,
    `write_id` the write id of the last entry (None if an older version folded it).
    """

    number: int
    time_ms: int
    horizon: int
    forgotten_below: int
    dimensions: int
    orphan_age_ms: int
    run_bar_ms: int
    write_id: str | None
    table_type: str | None

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # Rows that `rows.find_partition` read, until a partition changes.
        self.partition_rows: dict[str, Any] = {}
        self._ids_added = 0
        self._first_number: int | None = None
        (
            self.number,
            self.time_ms,
            self.horizon,
            self.forgotten_below,
            self.dimensions,
            self.orphan_age_ms,
            self.run_bar_ms,
            self.write_id,
            self.table_type,
        ) = self.row(
            "SELECT number, time, horizon, forgotten_below, dimensions, orphan_age, run_bar,"
            " write_id, table_type FROM position"
        )

    @property
    def next_number(self) -> int:
        """The number of the transaction being validated or applied."""
        return self.number + 1

    @property
    def entry_first(self) -> int:
        """The number of the first transaction of the entry being folded."""
        return self._first_number or self.next_number

    @property
    def is_snapshot_table(self) -> bool:
        return self.table_type == SNAPSHOT_TABLE

    @property
    def initialised(self) -> bool:
        return self.dimensions > 0

    def save(self) -> dict[str, Any]:
        """Returns the point to which `go_back` undoes what follows. There is one at a time."""
        self.connection.execute("SAVEPOINT saved")
        return dict(vars(self))

    def go_back(self, saved: dict[str, Any]) -> None:
        """Undoes all changes since `save` returned the point."""
        self.connection.execute("ROLLBACK TO saved")
        vars(self).update(saved)
        self.partition_rows.clear()

    def row(self, sql: str, parameters: Any = ()) -> Any:
        """Returns the first row of a query, or None."""
        return self.connection.execute(sql, parameters).fetchone()

    def rows(self, sql: str, parameters: Any = ()) -> list[Any]:
        """Returns all rows of a query."""
        return self.connection.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Runs a statement that changes the state."""
        try:
            return self.connection.execute(sql, parameters)
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidRequestError(f"a value does not fit the state store: {error}") from error

    def run_many(self, sql: str, rows: Sequence[Any]) -> None:
        """Runs a statement that changes the state with each of the parameters."""
        try:
            self.connection.executemany(sql, rows)
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidRequestError(f"a value does not fit the state store: {error}") from error

    def applied(self, transaction_id: str, kind: str) -> AppliedId | None:
        """Returns the earlier use of the id by that kind, if it is still stored."""
        row = self.row(
            "SELECT id, kind, fingerprint, number, time FROM applied WHERE id = ? AND kind = ?",
            (transaction_id, kind),
        )
        return row and AppliedId(*row)

    def remember(
        self, transaction_id: str, kind: str, fingerprint: bytes, number: int | None = None
    ) -> None:
        """Stores the id of the transaction with the number, by default the one being applied."""
        self._ids_added += 1
        self.run(
            "INSERT INTO applied (id, kind, fingerprint, number, time) VALUES (?, ?, ?, ?, ?)",
            (transaction_id, kind, fingerprint, number or self.next_number, self.time_ms),
        )

    def record(self, kind: str, effect: Effect) -> None:
        """Adds the transaction that is being applied to the history."""
        if self._first_number is None:
            self._first_number = self.next_number
        self.run(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                self.next_number,
                self.time_ms,
                kind,
                effect.job,
                effect.files,
                effect.rows,
                effect.bytes,
            ),
        )

    def finish_entry(self) -> None:
        """Stores position and time, and deletes old ids and history; once per entry of the log.

        Deletion is bounded per entry, but exceeds the number of added rows, so the tables cannot
        grow without limit.
        """
        self.run(
            "UPDATE position SET number = ?, time = ?, horizon = ?, forgotten_below = ?,"
            " dimensions = ?, orphan_age = ?, run_bar = ?, write_id = ?, table_type = ?",
            (
                self.number,
                self.time_ms,
                self.horizon,
                self.forgotten_below,
                self.dimensions,
                self.orphan_age_ms,
                self.run_bar_ms,
                self.write_id,
                self.table_type,
            ),
        )
        self.run("INSERT INTO entry_times VALUES (?, ?)", (self.number, self.time_ms))
        oldest = self.row("SELECT time FROM applied ORDER BY key LIMIT 1")
        too_old = self.time_ms - APPLIED_ID_DAYS * DAY_MS
        if oldest is not None and oldest[0] < too_old:
            self.run(
                "DELETE FROM applied WHERE key IN (SELECT key FROM applied ORDER BY key LIMIT ?)"
                " AND time < ?",
                (max(_PRUNED_PER_ENTRY, 2 * self._ids_added), too_old),
            )
        self._ids_added = 0
        self._prune_history()

    def _prune_history(self) -> None:
        """Deletes the history before the horizon, except for that of the newest transactions."""
        first = self._first_number or self.next_number
        self._first_number = None
        end = min(self.horizon, self.number - HISTORY_KEPT_MIN + 1)
        (oldest,) = self.row("SELECT min(number) FROM history")
        if oldest is not None and oldest < end:
            added = self.number - first + 1
            end = min(end, oldest + max(_PRUNED_PER_ENTRY, 2 * added))
            self.run("DELETE FROM history WHERE number < ?", (end,))


LOG_TIME_JUMP_MS_MAX = APPLIED_ID_DAYS * DAY_MS
"""A longer jump forgets every job's id at once."""


def is_jump(now_ms: int, log_time_ms: int) -> bool:
    """Returns whether the clock is implausibly far ahead of the log."""
    return now_ms - log_time_ms > LOG_TIME_JUMP_MS_MAX


def jump_error(now_ms: int, log_time_ms: int) -> UnavailableError:
    """Returns the error for a commit that would advance the log's time too far."""
    return UnavailableError(
        f"this machine's clock, {iso_time(now_ms)}, is {days(now_ms - log_time_ms)} ahead of the "
        f"table's last commit, {iso_time(log_time_ms)} (expected at most "
        f"{days(LOG_TIME_JUMP_MS_MAX)}): if the clock is wrong, set it; if it is right, "
        "run `sleeper table accept-time NAME`"
    )


def days(milliseconds: int) -> str:
    """Returns a readable duration."""
    count = milliseconds / DAY_MS
    return f"{count:.0f} days" if count >= 2 else f"{count:.2f} days"
