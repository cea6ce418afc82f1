import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from obstore.store import LocalStore

from sleeper.aws.state_copies import CopyLimits, StateCopies
from sleeper.errors import UnavailableError
from sleeper.local.state_store import SqliteTransactionLog
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import schema_to_json
from sleeper.statestore.database import Database
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.tables import TableId
from tests.clock import FakeClock
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import SCHEMA


class Tables:
    """Tables with remote logs, and the copies of successive processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "copies"
        self.folder.mkdir()
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._objects = LocalStore(folder / "objects", mkdir=True)
        self.clock = FakeClock()
        self.limits = CopyLimits(3, 2**40)

    def log(self, table_id: TableId) -> SqliteTransactionLog:
        return SqliteTransactionLog(Database(self._logs / f"{table_id}.db"))

    def copies(self) -> StateCopies:
        return StateCopies(
            lambda: self.folder,
            self.log,
            lambda _: MemoryHolds(),
            self._objects,
            lambda: self.limits,
            self.clock,
        )

    def list_copies(self) -> set[str]:
        return {path.parent.name for path in self.folder.glob("*/state.db")}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def ids(count: int) -> list[TableId]:
    return [TableId(f"{i:08x}") for i in range(count)]


def initialise(store: StateStore) -> None:
    tree = tuple(tree_from_split_points(SCHEMA, ()))
    store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))


def number(copies: StateCopies, table_id: TableId) -> int:
    with copies.get(table_id).reading() as state:
        return int(state.number)


def test_a_copy_is_opened_once_and_reused_by_the_next_process(tables: Tables) -> None:
    (table_id,) = ids(1)
    copies = tables.copies()
    assert copies.get(table_id) is copies.get(table_id)
    initialise(copies.get(table_id))
    copies.close()
    assert tables.list_copies() == {table_id}
    previous = (tables.folder / table_id / "state.db").stat().st_ino
    later = tables.copies()
    assert number(later, table_id) == 1
    assert (tables.folder / table_id / "state.db").stat().st_ino == previous
    later.close()


def test_least_recently_used_copies_are_evicted_and_restored_from_the_log(tables: Tables) -> None:
    a, b, c, d = ids(4)
    copies = tables.copies()
    for table_id in (a, b, c):
        initialise(copies.get(table_id))
    assert number(copies, a) == 1
    initialise(copies.get(d))
    assert tables.list_copies() == {a, c, d}
    assert number(copies, b) == 1
    assert tables.list_copies() == {a, b, d}
    copies.close()


def test_a_referenced_state_store_stays_open(tables: Tables) -> None:
    a, b, c, d = ids(4)
    copies = tables.copies()
    copy = copies.get(a)
    initialise(copy)
    for table_id in (b, c, d):
        initialise(copies.get(table_id))
    assert tables.list_copies() == {a, c, d}
    assert copies.get(a) is copy
    with copy.reading() as state:
        assert state.number == 1
    copies.close()


def test_copies_are_evicted_by_total_bytes(tables: Tables) -> None:
    a, b, c = ids(3)
    copies = tables.copies()
    for table_id in (a, b):
        initialise(copies.get(table_id))
    tables.limits = CopyLimits(100, 0)
    initialise(copies.get(c))
    assert tables.list_copies() == {c}
    assert number(copies, a) == 1
    copies.close()


def test_copies_of_earlier_processes_count_and_are_evicted_first(tables: Tables) -> None:
    a, b, c, d = ids(4)
    earlier = tables.copies()
    for table_id in (a, b):
        initialise(earlier.get(table_id))
    earlier.close()
    copies = tables.copies()
    initialise(copies.get(c))
    initialise(copies.get(d))
    assert {c, d} < tables.list_copies()
    assert len(tables.list_copies()) == 3
    copies.close()


def test_a_damaged_copy_is_replaced(tables: Tables) -> None:
    (table_id,) = ids(1)
    copies = tables.copies()
    initialise(copies.get(table_id))
    copies.close()
    for path in (tables.folder / table_id).iterdir():
        path.write_bytes(b"no database at all, but long enough to be looked at as one" * 100)
    later = tables.copies()
    assert number(later, table_id) == 1
    later.close()


def test_a_deleted_table_has_no_copy(tables: Tables) -> None:
    (table_id,) = ids(1)
    copies = tables.copies()
    initialise(copies.get(table_id))
    copies.forget(table_id)
    copies.forget(table_id)
    assert list(tables.folder.iterdir()) == []
    assert number(copies, table_id) == 1
    copies.close()


@pytest.mark.parametrize(
    "error", [OSError(28, "no space left"), sqlite3.OperationalError("database or disk is full")]
)
@pytest.mark.parametrize("step", ["_fetch", "_check"])
def test_a_full_disk_is_unavailable_and_not_a_torn_snapshot(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    (table_id,) = ids(1)
    copies = tables.copies()
    initialise(copies.get(table_id))
    copies.get(table_id).save_snapshot()
    copies.forget(table_id)
    owner = "sleeper.statestore.snapshots" + (".SnapshotStore" if step == "_fetch" else "")

    def full(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"{owner}.{step}", full)
        with pytest.raises(UnavailableError):
            copies.get(table_id)
    assert number(copies, table_id) == 1
    copies.close()


def test_copies_that_grew_after_opening_are_evicted(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with all tables open opens no other, so opening cannot evict a copy."""
    monkeypatch.setattr("sleeper.aws.state_copies._EVICTION_SECONDS", 0.0)
    first, second, third = ids(3)
    copies = tables.copies()
    for table_id in (first, second, third):
        initialise(copies.get(table_id))
    remaining = copies.get(first)
    tables.limits = CopyLimits(3, 0)
    assert number(copies, third) == 1
    assert tables.list_copies() == {first, third}
    assert copies.get(first) is remaining
    assert number(copies, second) == 1
    copies.close()


def test_a_killed_process_s_partial_snapshot_is_deleted(tables: Tables) -> None:
    (table_id,) = ids(1)
    left = tables.folder / table_id / "sleeper-snapshot-1a2b"
    left.mkdir(parents=True)
    (left / "state.db").write_bytes(b"half of it")
    copies = tables.copies()
    initialise(copies.get(table_id))
    assert not left.exists()
    copies.close()


def test_a_write_ahead_log_left_by_a_killed_removal_is_not_replayed(tables: Tables) -> None:
    (table_id,) = ids(1)
    copy = tables.folder / table_id / "state.db"
    copies = tables.copies()
    store = copies.get(table_id)
    initialise(store)
    store.save_snapshot()
    for follower in range(30):
        if follower == 20:  # now the write-ahead log has only some of the pages
            with closing(sqlite3.connect(copy)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.commit_or_raise(CreateFollower(f"follower-{follower}", 1))
    left = {p.name: p.read_bytes() for p in copy.parent.glob("state.db-*")}
    assert left["state.db-wal"]
    del store
    copies.forget(table_id)
    copy.parent.mkdir()
    for name, content in left.items():
        (copy.parent / name).write_bytes(content)
    later = tables.copies()
    assert number(later, table_id) == 31
    later.close()
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_removal_deletes_the_database_before_its_write_ahead_log(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database without its write-ahead log may have part of a checkpoint."""
    (table_id,) = ids(1)
    copies = tables.copies()
    initialise(copies.get(table_id))
    copies.close()
    present: list[bool] = []
    monkeypatch.setattr(
        shutil, "rmtree", lambda folder, **_: present.append((folder / "state.db").exists())
    )
    tables.copies().forget(table_id)
    assert present == [False]
