"""SQLite errors translated into the product's errors."""

import sqlite3
from pathlib import Path

import pytest

from sleeper.errors import DataError, UnavailableError
from sleeper.statestore.database import translated_errors


def test_a_read_only_database_is_reported_clearly(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    sqlite3.connect(path).execute("CREATE TABLE t (x)")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with (
        pytest.raises(UnavailableError, match=r"state\.db: cannot be written: .*read-only"),
        translated_errors(path),
    ):
        connection.execute("INSERT INTO t VALUES (1)")


def test_other_errors_keep_the_message_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with pytest.raises(UnavailableError, match="no such table"), translated_errors(path):
        sqlite3.connect(path).execute("SELECT * FROM t")
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(DataError, match="not a database"), translated_errors(path):
        sqlite3.connect(path).execute("SELECT * FROM t")


def test_a_database_without_memory_is_unavailable(tmp_path: Path) -> None:
    with (
        pytest.raises(UnavailableError, match=r"state\.db: out of memory"),
        translated_errors(tmp_path / "state.db"),
    ):
        raise MemoryError
