"""SQLite on the simulated disk: what it has committed survives, and forgotten syncs are found."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

from simulation.calls import Fault
from simulation.disk import DirectHooks, Disk, install_disk
from simulation.disk.image import Image
from tests.simulation.disk.worlds import Countdown

Prepare = Callable[[sqlite3.Connection], None]


def synchronous(mode: str, journal: str = "WAL") -> Prepare:
    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute(f"PRAGMA synchronous = {mode}")
        connection.execute("PRAGMA wal_autocheckpoint = 5")

    return prepare


def connect(path: Path, prepare: Prepare) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    prepare(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER, text TEXT)")
    return connection


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [n for (n,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


def write_until_killed(path: Path, prepare: Prepare, first: int) -> int:
    """Inserts numbers in transactions of their own. Returns the next after those committed."""
    number = first
    with suppress(sqlite3.Error), closing(connect(path, prepare)) as connection:
        for number in range(first, first + 30):
            connection.execute("INSERT INTO numbers VALUES (?, ?)", (number, "x" * 700))
        number += 1
    return number


def lose_power_often(folder: Path, seed: int, prepare: Prepare, failures: int = 12) -> bytes:
    """Writes and loses power, and checks what was committed. Returns the database in the end."""
    random = Random(seed)
    hooks = Countdown(random)
    disk = install_disk(folder, hooks)
    path = folder / "numbers.db"
    try:
        with closing(connect(path, prepare)):
            pass
        committed = 0
        for _ in range(failures):
            hooks.left = random.randrange(200)
            committed = write_until_killed(path, prepare, committed)
            disk.lose_power(random)
            hooks.left = -1
            present = numbers(path)
            # The last one may have been committed just before the process died.
            assert present in (list(range(committed)), list(range(committed + 1)))
            committed = len(present)
    finally:
        disk.uninstall()
    return path.read_bytes()


def lost_power(folder: Path, seed: int, prepare: Prepare) -> bool:
    """Returns whether a power failure lost or destroyed something."""
    try:
        lose_power_often(folder, seed, prepare)
    except (AssertionError, sqlite3.Error):
        return True
    return False


@pytest.mark.parametrize(
    ("mode", "journal"), [("FULL", "WAL"), ("EXTRA", "DELETE"), ("FULL", "TRUNCATE")]
)
@pytest.mark.parametrize("seed", range(8))
def test_committed_transactions_survive(folder: Path, seed: int, mode: str, journal: str) -> None:
    lose_power_often(folder, seed, synchronous(mode, journal))


def test_the_same_seed_leaves_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = lose_power_often(folder, 1, synchronous("FULL"))
    folder.rename(folder.with_name("first"))
    folder.mkdir()
    assert lose_power_often(folder, 1, synchronous("FULL")) == first


# With FULL, SQLite deletes the journal durably only at the next transaction.
@pytest.mark.parametrize(
    ("mode", "journal"), [("OFF", "WAL"), ("NORMAL", "WAL"), ("FULL", "DELETE")]
)
def test_a_database_that_does_not_sync_commits_is_found(
    folder: Path, mode: str, journal: str
) -> None:
    assert any(
        lost_power(_made(folder / str(seed)), seed, synchronous(mode, journal))
        for seed in range(10)
    )


def test_a_dropped_sync_of_the_folder_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "sync_folder", _keep_names_of_start(Image.sync_folder))
    assert any(
        lost_power(_made(folder / str(seed)), seed, synchronous("FULL")) for seed in range(10)
    )


def _keep_names_of_start(sync: Callable[[Image, str], None]) -> Callable[[Image, str], None]:
    def sync_empty(image: Image, path: str) -> None:
        if not any(Path(path).glob("*-wal")):
            sync(image, path)

    return sync_empty


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def opened(folder: Path, hooks: Countdown) -> tuple[Disk, Path]:
    return install_disk(folder, hooks), folder / "numbers.db"


def test_a_full_disk_refuses_a_write_and_loses_nothing(folder: Path) -> None:
    hooks = Countdown(Random(1))
    disk, path = opened(folder, hooks)
    with closing(connect(path, synchronous("FULL"))) as connection:
        connection.execute("INSERT INTO numbers VALUES (1, '')")
        hooks.fault = Fault.FULL
        with pytest.raises(sqlite3.OperationalError, match="full"):
            connection.execute("INSERT INTO numbers VALUES (2, '')")
        hooks.fault = None
        connection.execute("INSERT INTO numbers VALUES (3, '')")
    assert numbers(path) == [1, 3]
    disk.uninstall()


def test_a_refused_sync_fails_the_commit(folder: Path) -> None:
    hooks = Countdown(Random(1))
    disk, path = opened(folder, hooks)
    with closing(connect(path, synchronous("FULL"))) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO numbers VALUES (1, '')")
        hooks.fault = Fault.UNAVAILABLE
        with pytest.raises(sqlite3.OperationalError) as raised:
            connection.execute("COMMIT")
        assert raised.value.sqlite_errorname.startswith("SQLITE_IOERR")
        hooks.fault = None
    disk.uninstall()


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_dead_process_holds_no_lock_and_writes_nothing(folder: Path, journal: str) -> None:
    hooks = Countdown(Random(1))
    disk, path = opened(folder, hooks)
    dead = connect(path, synchronous("FULL", journal))
    dead.execute("BEGIN IMMEDIATE")
    dead.execute("INSERT INTO numbers VALUES (1, '')")
    hooks.name = "other"
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as living:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            living.execute("BEGIN IMMEDIATE")
        disk.end("process")
        living.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            dead.execute("COMMIT")
        dead.close()
        living.execute("INSERT INTO numbers VALUES (2, '')")
        living.execute("COMMIT")
    assert numbers(path) == [2]
    disk.uninstall()


def test_a_wait_for_a_lock_takes_virtual_time(folder: Path) -> None:
    hooks = Countdown(Random(1))
    disk, path = opened(folder, hooks)
    with (
        closing(connect(path, synchronous("FULL"))) as writer,
        closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as waiter,
    ):
        writer.execute("BEGIN IMMEDIATE")
        start_ms = hooks.now_ms()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            waiter.execute("BEGIN IMMEDIATE")
        assert 59_000 <= hooks.now_ms() - start_ms <= 61_000
        (time,) = waiter.execute("SELECT unixepoch()").fetchone()
        assert time == hooks.now_ms() // 1000
    disk.uninstall()


def test_a_journal_is_synchronised_after_its_folder_was_deleted(folder: Path) -> None:
    class Deleting(DirectHooks):
        def before(self, operation: str, path: str) -> Fault | None:
            if operation == "sync" and path.endswith("-wal"):
                shutil.rmtree(table, ignore_errors=True)
            return None

    table = folder / "table"
    table.mkdir()
    disk = install_disk(folder, Deleting(Random(1)))
    with closing(connect(table / "numbers.db", synchronous("FULL"))) as connection:
        connection.execute("INSERT INTO numbers VALUES (1, '')")
    assert not table.exists()
    disk.uninstall()


def test_an_error_of_the_simulation_is_raised_later(folder: Path) -> None:
    class Defective(DirectHooks):
        def before(self, operation: str, path: str) -> Fault | None:
            if operation == "write":
                raise ZeroDivisionError
            return None

    disk = install_disk(folder, Defective(Random(1)))
    with pytest.raises(sqlite3.OperationalError):
        connect(folder / "numbers.db", synchronous("FULL"))
    with pytest.raises(ZeroDivisionError):
        disk.uninstall()
