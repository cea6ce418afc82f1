import _thread
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import ConflictError, DataError, SleeperError, UnavailableError
from sleeper.local import database as databases
from sleeper.local.database import InstanceDatabase
from sleeper.statestore.database_errors import damage_error


@pytest.fixture
def database(tmp_path: Path) -> InstanceDatabase:
    database = InstanceDatabase(tmp_path / "instance.db")
    database.create()
    database.create()
    return database


def test_a_transaction_s_reads_stay_valid_until_its_end(database: InstanceDatabase) -> None:
    other = InstanceDatabase(database.path)
    wrote = threading.Event()

    def write() -> None:
        with other.write() as transaction:
            transaction.execute("INSERT INTO tables VALUES ('b', 'b', 1, 'active')")
        wrote.set()

    with database.write() as transaction:
        assert transaction.execute("SELECT count(*) FROM tables").fetchone()[0] == 0
        thread = threading.Thread(target=write)
        thread.start()
        assert not wrote.wait(0.2)
        transaction.execute("INSERT INTO tables VALUES ('a', 'a', 1, 'active')")
    thread.join(30)
    assert len(database.read("SELECT * FROM tables")) == 2
    other.close()
    database.close()


def test_a_failed_transaction_is_rolled_back(database: InstanceDatabase) -> None:
    def fail() -> None:
        with database.write() as transaction:
            transaction.execute("INSERT INTO tables VALUES ('a', 'a', 1, 'active')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert database.read("SELECT * FROM tables") == []
    with database.write() as transaction:
        transaction.execute("INSERT INTO tables VALUES ('a', 'a', 1, 'active')")
    database.close()


def test_errors_of_sqlite_are_translated(database: InstanceDatabase) -> None:
    with pytest.raises(UnavailableError, match=r"instance\.db: no such table"):
        database.read("SELECT * FROM missing")

    def write_a_name_twice() -> None:
        with database.write() as transaction:
            transaction.execute("INSERT INTO tables VALUES ('a', 'a', 1, 'active')")
            transaction.execute("INSERT INTO tables VALUES ('b', 'a', 1, 'active')")

    with pytest.raises(ConflictError, match="UNIQUE"):
        write_a_name_twice()
    assert database.read("SELECT * FROM tables") == []
    database.close()


def test_every_commit_is_synchronised(database: InstanceDatabase) -> None:
    assert database.read("PRAGMA synchronous")[0][0] == 2
    assert database.read("PRAGMA journal_mode")[0][0] == "wal"
    database.close()


def test_a_closed_database_reopens_on_use(database: InstanceDatabase) -> None:
    database.close()
    database.close()
    assert database.read("SELECT 1")[0][0] == 1
    database.close()


def _run_in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def _run_in_foreign_thread(work: Callable[[], object]) -> None:
    """Runs the work as the threads of a library do, which the module `threading` did not start."""
    ended, thread_count = threading.Event(), _thread._count()

    def run() -> None:
        work()
        ended.set()

    _thread.start_new_thread(run, ())
    assert ended.wait(30)
    while _thread._count() > thread_count:
        time.sleep(0.001)


@pytest.mark.parametrize("run", [_run_in_thread, _run_in_foreign_thread])
def test_threads_that_ended_leave_no_files_open(
    database: InstanceDatabase, run: Callable[[Callable[[], object]], None]
) -> None:
    def files_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    database.read("SELECT 1")
    previous = files_open()
    for _ in range(10):
        run(lambda: database.read("SELECT * FROM tables"))
    assert files_open() <= previous + 4
    database.close()


@pytest.mark.parametrize(
    ("is_repaired", "kind"), [(True, UnavailableError), (False, DataError)], ids=["once", "stays"]
)
def test_damage_is_looked_for_again(
    database: InstanceDatabase,
    monkeypatch: pytest.MonkeyPatch,
    is_repaired: bool,
    kind: type[SleeperError],
) -> None:
    assert database.vacuum()
    database.close()
    content = database.path.read_bytes()
    database.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

    def look_again(path: Path, error: Any) -> SleeperError:
        if is_repaired:
            path.write_bytes(content)
        return damage_error(path, error)

    monkeypatch.setattr(databases, "damage_error", look_again)
    with pytest.raises(kind):
        database.read("SELECT * FROM tables")
    if is_repaired:
        assert database.read("SELECT * FROM tables") == []
