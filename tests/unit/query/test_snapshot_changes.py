"""The change feed of a snapshot table: each version that has not expired replaces all rows."""

from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.properties import set_table_properties
from sleeper.garbage_collection.service import collect_table, expire_table_versions
from sleeper.query.changes import reader
from sleeper.query.changes.read import Change
from sleeper.query.hold import VersionHold
from tests.clock import FakeClock

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "valueFields": [{"name": "value", "type": "StringType"}],
}
PROPERTIES = {
    "sleeper.table.type": "snapshot",
    "sleeper.table.snapshot.min.versions": "3",
    "sleeper.table.gc.delay.minutes": "0",
    # Leaves with files in common would be read together.
    "sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf",
}
Content = list[int | str]


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", SCHEMA, PROPERTIES, split_points=[50])


def load(table: sleeper.Table, *keys: int) -> int:
    table.ingest(pa.table({"key": list(keys), "value": [""] * len(keys)}))
    return table.version


def content(change: Change) -> Content:
    return [change.operation, *change.rows["key"].to_pylist()]


def read(
    table: sleeper.Table, follower: str | None = None, first: int | None = None
) -> list[list[object]]:
    """Returns the number of each change, its operation and its keys."""
    changes = table.changes(from_number=first, follower=follower)
    return [[change.number, *content(change)] for change in changes]


def expire_and_collect(table: sleeper.Table, clock: FakeClock, kept: int = 1) -> None:
    name = "sleeper.table.snapshot.min.versions"
    set_table_properties(table._instance, "rows", {name: str(kept)})
    clock.pass_minutes(1)
    expire_table_versions(table._instance, "rows")
    clock.pass_minutes(1)
    collect_table(table._instance, "rows")


def test_each_version_is_a_replacement_of_all_rows(table: sleeper.Table) -> None:
    first = load(table, 1, 70)
    table.delete(keys=[[1]])
    empty = load(table)
    restored = table.restore(first).number
    cleared = table.reinitialise().number
    assert read(table) == [
        [first, "replace"],
        [first, "insert", 1],
        [first, "insert", 70],
        [first + 1, "delete_region"],
        [empty, "replace"],
        [restored, "replace"],
        [restored, "insert", 1],
        [restored, "insert", 70],
        [cleared, "replace"],
    ]


def test_a_late_reader_skips_the_versions_that_expired(
    table: sleeper.Table, clock: FakeClock
) -> None:
    first = load(table, 1)
    assert read(table, "late") == [[first, "replace"], [first, "insert", 1]]
    for key in (2, 3):
        load(table, key)
    table.delete(keys=[[3]])
    newest = load(table, 4)
    expire_and_collect(table, clock)
    expected = [[newest, "replace"], [newest, "insert", 4]]
    state = table._instance.table("rows").state
    with state.reading() as reading:
        assert reading.horizon > first
    assert read(table, "late") == expected
    assert read(table, "late") == []
    assert read(table, "new", first=1) == expected
    assert read(table, first=first) == expected
    assert [follower.lost for follower in state.followers()] == [0, 0]


def test_followers_keep_no_versions(table: sleeper.Table, clock: FakeClock) -> None:
    load(table, 1)
    read(table, "late")
    for key in (2, 3):
        load(table, key)
    expire_and_collect(table, clock)
    assert len(list(Path(table._instance.where).glob("*/data/*/*.parquet"))) == 1


def test_a_version_is_held_while_its_changes_are_read(
    table: sleeper.Table, clock: FakeClock
) -> None:
    first = load(table, 1, 70)
    newest = load(table, 2)
    changes = iter(table.changes())
    assert content(next(changes)) == ["replace"]
    expire_and_collect(table, clock)
    rest = [[change.number, *content(change)] for change in changes]
    assert rest[:2] == [[first, "insert", 1], [first, "insert", 70]]
    assert rest[2:] == [[newest, "replace"], [newest, "insert", 2]]
    assert table._instance.table("rows").state.followers() == []


def test_a_version_that_expires_before_it_is_read_is_skipped(
    table: sleeper.Table, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(table, 1)
    newest = load(table, 2)
    expired: list[int] = []

    class LateHold(VersionHold):
        def acquire(self) -> None:
            if not expired:
                expired.append(1)
                expire_and_collect(table, clock)
            super().acquire()

    monkeypatch.setattr(reader, "VersionHold", LateHold)
    assert read(table) == [[newest, "replace"], [newest, "insert", 2]]


def test_the_expiry_of_the_newest_version_is_no_change(
    table: sleeper.Table, clock: FakeClock
) -> None:
    load(table, 1)
    read(table, "f")
    set_table_properties(table._instance, "rows", {"sleeper.table.snapshot.ttl": "1m"})
    clock.pass_minutes(2)
    expire_and_collect(table, clock, kept=0)
    assert read(table, "f") == []
    newest = load(table, 2)
    assert read(table, "f") == [[newest, "replace"], [newest, "insert", 2]]
