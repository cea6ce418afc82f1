"""SQLite errors translated into the product's errors."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sleeper.errors import DataError, UnavailableError
from sleeper.statestore.database import Database
from sleeper.statestore.database_errors import translated_errors


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


def test_an_error_that_ended_a_read_is_the_one_reported(tmp_path: Path) -> None:
    """SQLite rolls back after an I/O error, and refuses another rollback."""
    database = Database(tmp_path / "state.db")
    with database.writing() as connection:
        connection.execute("CREATE TABLE t (x)")

    def fail() -> None:
        with database.reading() as reading:
            reading.execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_READ"
            raise error

    with pytest.raises(UnavailableError, match="disk I/O error"):
        fail()
    assert read(database) == 0
    database.close()


def test_a_database_without_memory_is_unavailable(tmp_path: Path) -> None:
    with (
        pytest.raises(UnavailableError, match=r"state\.db: out of memory"),
        translated_errors(tmp_path / "state.db"),
    ):
        raise MemoryError


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Database, Callable[[], object]]:
    """A database with a damaged page, and a function that repairs it."""
    path = tmp_path / "state.db"
    database = Database(path)
    with database.writing() as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 100,)] * 1000)
    assert database.vacuum()
    database.close()
    content = path.read_bytes()
    path.write_bytes(content[: 4096 * 3] + bytes(4096) + content[4096 * 4 :])
    return database, lambda: path.write_bytes(content)


def read(database: Database, on_error: Callable[[], object] = lambda: None) -> int:
    with database.reading() as connection:
        try:
            return len(connection.execute("SELECT x FROM t").fetchall())
        except sqlite3.DatabaseError:
            on_error()
            raise


def test_damage_that_a_second_read_does_not_find_is_unavailable(
    damaged: tuple[Database, Callable[[], object]],
) -> None:
    database, repair = damaged
    with pytest.raises(UnavailableError, match=r"the disk returned damaged content once"):
        read(database, repair)
    # The connection with the damaged page in its cache is closed.
    assert read(database) == 1000


def test_damage_that_stays_is_a_data_error(
    damaged: tuple[Database, Callable[[], object]],
) -> None:
    with pytest.raises(DataError, match="malformed"):
        read(damaged[0])


def test_an_unreadable_disk_is_unavailable(
    damaged: tuple[Database, Callable[[], object]], tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="malformed, and then unable to open"):
        read(damaged[0], (tmp_path / "state.db").unlink)
