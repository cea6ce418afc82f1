"""Folders of instances that older versions of Sleeper wrote, from their opening to a collection.

`instance-format-N.tar.xz` in `tests/approved/recorded` has the folder of an instance whose states
have format N: 3 is of version 0.2.0, and 5 of the last version that wrote holds into the log.
Table `t` has two ingests, a hold on version 3 that lasts an hour, a follower at 3, a compaction of
both files, and a third ingest.
"""

import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.local.holds import LocalHolds
from sleeper.local.instance import open_local_instance
from sleeper.local.state_store import SqliteTransactionLog
from sleeper.statestore.database import Database
from sleeper.statestore.store import StateStore
from sleeper.tables import TableId
from tests.clock import FakeClock
from tests.tables.state_table import read_tables

RECORDED = Path(__file__).parents[2] / "approved" / "recorded"
FORMATS = (3, 5)


@pytest.fixture(params=FORMATS)
def state_format(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def folder(state_format: int, tmp_path: Path) -> Path:
    with tarfile.open(RECORDED / f"instance-format-{state_format}.tar.xz") as recorded:
        recorded.extractall(tmp_path / "instance", filter="data")
    return tmp_path / "instance"


@pytest.fixture
def clock(folder: Path) -> FakeClock:
    """A clock at the time of the last commit."""
    (state,) = folder.glob("*/state.db")
    with closing(sqlite3.connect(state)) as connection:
        ((time_ms,),) = connection.execute("SELECT time FROM position")
    return FakeClock(time_ms)


@pytest.fixture
def table(folder: Path, clock: FakeClock) -> Iterator[sleeper.Table]:
    with sleeper.Instance(open_local_instance(folder, clock, upgrade=True)) as instance:
        yield instance.table("t")


def keys(table: sleeper.Table, version: int | None = None) -> list[int]:
    result: list[int] = table.query(as_of=version).to_arrow()["k"].to_pylist()
    return result


def operations(table: sleeper.Table, **options: bool) -> list[str]:
    return [entry.operation for entry in reversed(table.history(**options))]


def test_holds_in_the_log_count_until_they_expire(table: sleeper.Table, clock: FakeClock) -> None:
    store = table._instance.table("t").state
    (hold,) = store.holds.all()
    assert (hold.id, hold.owner, hold.version) == ("query-1", "a query of an older version", 3)
    store.advance_follower("feed", table.version)
    clock.pass_minutes(30)
    report = table.gc()
    blocker = "hold query-1 of a query of an older version at version 3"
    assert (report.files, report.blocker) == (0, blocker)
    assert (keys(table, 3), keys(table)) == ([1, 2, 3, 4], [1, 2, 3, 4, 5])
    clock.pass_minutes(32)
    assert table.gc().files == 2
    assert keys(table) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidRequestError, match="no longer readable"):
        keys(table, 3)
    assert store.holds.all() == []


def test_history_and_lag_of_an_older_instance(table: sleeper.Table, state_format: int) -> None:
    store = table._instance.table("t").state
    number = table.version
    # Format 3 records no history, so all that it has may be changes of rows.
    assert [each.lag for each in store.followers()] == [number - 3 if state_format == 3 else 1]
    recorded = [] if state_format == 3 else ["create table", "ingest", "ingest", "ingest"]
    assert operations(table) == recorded
    assert ("create hold" in operations(table, all=True)) == (state_format == 5)
    store.advance_follower("feed", number)
    table.ingest(pa.table({"k": [6], "v": ["f"]}))
    table.compact(full=True)
    assert [each.lag for each in store.followers()] == [1]
    assert operations(table) == [*recorded, "ingest"]


def test_a_copy_that_folds_the_older_log_is_as_the_converted_state(
    folder: Path, clock: FakeClock, tmp_path: Path, state_format: int
) -> None:
    """On AWS each process folds the log, or opens a snapshot, which it converts."""
    open_local_instance(folder, clock, upgrade=True).close()
    (path,) = folder.glob("*/state.db")
    converted, copied = Database(path), Database(tmp_path / "copy.db", durable=False)
    holds = LocalHolds(Database(tmp_path / "holds.db"), TableId("t"))
    with closing(StateStore(copied, SqliteTransactionLog(converted), holds, clock)) as store:
        assert [hold.id for hold in store.holds.all()] == ["query-1"]
        expected, actual = read_tables(path), read_tables(copied.path)
    converted.close()
    if state_format == 3:
        # It has no history, nor the number up to which deletes are applied, which may be any.
        for tables in (expected, actual):
            del tables["history"], tables["files"]
    assert actual == expected


def test_the_copy_of_the_state_is_the_way_back(
    folder: Path, clock: FakeClock, state_format: int
) -> None:
    (state,) = folder.glob("*/state.db")
    with closing(sqlite3.connect(state)) as connection:
        before = list(connection.iterdump())
    with sleeper.Instance(open_local_instance(folder, clock, upgrade=True)) as instance:
        instance.table("t").ingest(pa.table({"k": [6], "v": ["f"]}))
    shutil.copy(state.with_name(f"state.db.format-{state_format}"), state)
    with closing(sqlite3.connect(state)) as connection:
        assert list(connection.iterdump()) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (state_format,)
