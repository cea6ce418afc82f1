"""The -wal file beside a database stays small, and can be emptied."""

from pathlib import Path

import pytest

from sleeper.statestore.database import Database

MIB = 1024**2


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(tmp_path / "state.db", durable=False)
    with database.writing() as connection:
        connection.execute("CREATE TABLE t (place INTEGER PRIMARY KEY, content BLOB)")
    return database


def write(database: Database, mib: int) -> None:
    """Replaces the same rows of a quarter of a MiB again and again."""
    for number in range(4 * mib):
        with database.writing() as connection:
            row = (number % 4, bytes(MIB // 4))
            connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", row)


def wal_bytes(database: Database) -> int:
    return database.path.with_name("state.db-wal").stat().st_size


def test_the_wal_stays_small_while_a_database_is_written(database: Database) -> None:
    write(database, 20)
    assert wal_bytes(database) < 5 * MIB
    database.close()


def test_the_wal_shrinks_after_a_long_read(database: Database) -> None:
    with database.reading() as connection:
        connection.execute("SELECT count(*) FROM t").fetchall()
        write(database, 12)
    assert wal_bytes(database) > 12 * MIB
    write(database, 10)
    assert wal_bytes(database) < 5 * MIB
    database.close()


def test_the_wal_is_emptied_unless_a_reader_needs_it(database: Database) -> None:
    write(database, 1)
    with database.reading() as connection:
        connection.execute("SELECT count(*) FROM t").fetchall()
        write(database, 1)
        assert not database.truncate_wal()
    assert database.truncate_wal()
    assert wal_bytes(database) == 0
    database.close()
