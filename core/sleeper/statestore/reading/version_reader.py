"""Queries of one version in one read transaction."""

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
        """Returns the first row, or None."""
        return self.connection.execute(sql, {"n": self.version, **parameters}).fetchone()

    def rows(self, sql: str, **parameters: Any) -> list[Any]:
        """Returns all rows."""
        return self.connection.execute(sql, {"n": self.version, **parameters}).fetchall()

    def stream(self, sql: str, **parameters: Any) -> Iterator[Any]:
        """Yields rows in bounded memory."""
        cursor = self.connection.execute(sql, {"n": self.version, **parameters})
        cursor.arraysize = _ROWS_PER_FETCH
        while batch := cursor.fetchmany():
            yield from batch


def current(alias: str, removed: str = "removed") -> str:
    """Returns SQL: the row exists at version `:n`."""
    return f"{alias}.added <= :n AND ({alias}.{removed} IS NULL OR {alias}.{removed} > :n)"
