"""One read transaction on the state, looking at one version."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ROWS_PER_FETCH = 1_000


@dataclass(frozen=True, slots=True)
class VersionReader:
    """Runs queries in which `:n` is the version."""

    connection: sqlite3.Connection
    version: int
    dimensions: int

    def row(self, sql: str, **parameters: Any) -> Any:
        """The first row, or None."""
        return self.connection.execute(sql, {"n": self.version, **parameters}).fetchone()

    def rows(self, sql: str, **parameters: Any) -> list[Any]:
        """All rows."""
        return self.connection.execute(sql, {"n": self.version, **parameters}).fetchall()

    def stream(self, sql: str, **parameters: Any) -> Iterator[Any]:
        """Rows as they are asked for, in bounded memory."""
        cursor = self.connection.execute(sql, {"n": self.version, **parameters})
        cursor.arraysize = _ROWS_PER_FETCH
        while batch := cursor.fetchmany():
            yield from batch


def current(alias: str, removed: str = "removed") -> str:
    """SQL: the thing is there at version `:n`."""
    return f"{alias}.added <= :n AND ({alias}.{removed} IS NULL OR {alias}.{removed} > :n)"
