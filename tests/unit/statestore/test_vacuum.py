"""A database that is vacuumed has no bytes of deleted rows, also in its -wal file."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sleeper.local.database import InstanceDatabase
from sleeper.statestore.database import Database

SECRET = b"a secret of some length" * 50


def holds_secret(folder: Path) -> bool:
    return any(SECRET[:20] in path.read_bytes() for path in folder.iterdir())


def leave_remains(path: Path) -> None:
    """Writes and deletes rows as a build of SQLite does that does not overwrite them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (key INTEGER PRIMARY KEY, body BLOB)")
        connection.executemany("INSERT INTO rows (body) VALUES (?)", [(SECRET,)] * 20)
        connection.execute("DELETE FROM rows WHERE key % 2")
        connection.execute("UPDATE rows SET body = x'00'")


def test_a_vacuumed_database_has_no_bytes_of_deleted_rows(tmp_path: Path) -> None:
    leave_remains(tmp_path / "state.db")
    database = Database(tmp_path / "state.db")
    assert holds_secret(tmp_path)
    assert database.vacuum()
    assert not holds_secret(tmp_path)
    with database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (10,)
    database.close()


def test_a_vacuumed_instance_database_has_no_bytes_of_deleted_rows(tmp_path: Path) -> None:
    leave_remains(tmp_path / "instance.db")
    database = InstanceDatabase(tmp_path / "instance.db")
    assert database.vacuum()
    assert not holds_secret(tmp_path)
    database.close()


def test_a_reader_keeps_old_pages_and_the_vacuum_says_so(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    with database.writing() as connection:
        connection.execute("CREATE TABLE rows (body BLOB)")
        connection.execute("INSERT INTO rows VALUES (?)", (SECRET,))
    with database.reading() as reader:
        reader.execute("SELECT * FROM rows").fetchone()
        with database.writing() as connection:
            connection.execute("DELETE FROM rows")
        assert not database.vacuum()
    assert database.vacuum()
    assert not holds_secret(tmp_path)
    database.close()
