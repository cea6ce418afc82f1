"""Collection of unreferenced files: selection, age, order of steps, and crashes."""

from pathlib import Path

import pytest

import sleeper.garbage_collection.collection as collection
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.garbage_collection.collection import Claims
from sleeper.statestore.holds import Hold
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected, RaiseHorizon
from sleeper.statestore.transactions.holds import CreateFollower
from tests.tables.data_table import OBJECTS_PER_FILE, DataTable
from tests.tables.watched_ports import Killed
from tests.unit.conftest import MakeTable


def compact_table(table: DataTable, times: int = 1) -> DataTable:
    """The table after files were replaced, so that old ones wait for collection."""
    for _ in range(times):
        table.ingest(range(10))
        table.ingest(range(10))
        table.compact(full=True)
    return table


def hold(table: DataTable, version: int, minutes: float = 60, name: str = "h") -> None:
    expiry = table.clock() + int(minutes * 60_000)
    table.store.holds.take(Hold(name, "a reader", version, expiry))


def test_files_are_kept_for_the_tables_delay_and_then_deleted_with_their_sidecars(
    table: DataTable,
) -> None:
    compact_table(table)
    previous = table.rows()
    assert len(table.paths_on_disk()) == 3 * OBJECTS_PER_FILE
    table.clock.pass_minutes(9)
    assert table.collect().files == 0
    table.clock.pass_minutes(2)
    report = table.collect()
    assert report.files == 2
    assert report.bytes > 1000
    assert report.blocker is None
    (remaining,) = table.files()
    assert table.paths_on_disk() == [
        remaining.path + s for s in ("", ".checksum", ".filter", ".sketches")
    ]
    assert table.rows() == previous
    assert table.collect().files == 0


def test_rule_5_a_referenced_file_is_never_collected(
    make_table: MakeTable,
) -> None:
    table = make_table(split_points=[5])
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs(full=True)
    table.run(table.sent_jobs()[0])
    table.clock.pass_minutes(60)
    previous = table.rows()
    assert table.collect().files == 0
    assert table.rows() == previous


def test_rule_5_a_hold_keeps_its_files_until_it_ends(table: DataTable) -> None:
    compact_table(table)
    old = table.number() - 2
    hold(table, old)
    held_rows = table.rows(old)
    table.clock.pass_minutes(30)
    report = table.collect()
    assert (report.files, report.blocker) == (0, f"hold h of a reader at version {old}")
    assert table.rows(old) == held_rows
    table.store.holds.release(["h"])
    assert table.collect().files == 2


def test_rule_5_an_expired_hold_does_not_limit_collection(table: DataTable) -> None:
    compact_table(table)
    hold(table, table.number() - 2, minutes=20)
    table.clock.pass_minutes(19)
    assert table.collect().files == 0
    table.clock.pass_minutes(2)
    assert table.collect().files == 2


def test_rule_5_a_hold_keeps_only_the_files_of_its_version(table: DataTable) -> None:
    compact_table(table)
    version = table.number()
    hold(table, version)
    compact_table(table)
    table.clock.pass_minutes(30)
    held_rows = table.rows(version)
    report = table.collect()
    assert (report.files, report.horizon_after) == (2, version)
    assert report.blocker == f"hold h of a reader at version {version}"
    assert table.rows(version) == held_rows
    with pytest.raises(InvalidRequestError, match=f"the oldest readable version is {version}"):
        table.rows(version - 1)


def test_rule_5_a_follower_keeps_unread_files(table: DataTable) -> None:
    start = table.number()
    table.store.commit_or_raise(CreateFollower("copy", start))
    compact_table(table)
    table.clock.pass_minutes(30)
    report = table.collect()
    assert (report.files, report.blocker) == (0, f"follower copy at version {start}")
    table.store.advance_follower("copy", table.number())
    assert table.collect().files == 2


def test_rule_5_a_hold_created_just_before_the_entry_keeps_its_files(table: DataTable) -> None:
    compact_table(table)
    old = table.number() - 2
    held_rows = table.rows(old)
    table.clock.pass_minutes(30)
    table.watched.before_commit.append((RaiseHorizon, lambda: hold(table, old)))
    assert table.collect().files == 0
    assert table.rows(old) == held_rows


def test_constantly_new_claims_end_in_a_conflict(
    table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_table(table)
    hold(table, 1)
    table.clock.pass_minutes(30)
    nobody = Claims(table.number(), None, ())
    monkeypatch.setattr(collection, "find_claims", lambda store, now_ms, retention: nobody)
    with pytest.raises(ConflictError, match="nothing could be collected"):
        table.collect()
    assert len(table.paths_on_disk()) == 3 * OBJECTS_PER_FILE


def test_rule_5_objects_are_deleted_after_the_entry_that_removes_the_files(
    table: DataTable,
) -> None:
    compact_table(table)
    table.clock.pass_minutes(30)
    seen = []

    def look() -> None:
        seen.append(len(table.paths_on_disk()))

    table.watched.before_commit.append((CollectFiles, look))
    table.watched.before_commit.append((FilesCollected, look))
    table.collect()
    assert seen == [3 * OBJECTS_PER_FILE, OBJECTS_PER_FILE]


def test_files_are_collected_in_batches(table: DataTable) -> None:
    table.set(sleeper__gc__batch__size=3)
    compact_table(table, times=4)
    table.clock.pass_minutes(30)
    assert table.collect().files == 11
    entries = [t for t in table.watched.committed if isinstance(t, CollectFiles)]
    assert [len(t.paths) for t in entries] == [3, 3, 3, 2]
    assert len(table.paths_on_disk()) == OBJECTS_PER_FILE


def test_a_dry_run_lists_files_and_changes_nothing(table: DataTable) -> None:
    compact_table(table)
    table.clock.pass_minutes(30)
    number, on_disk = table.number(), table.paths_on_disk()
    report = table.collect(dry_run=True)
    assert (table.number(), table.paths_on_disk()) == (number, on_disk)
    (remaining,) = table.files()
    assert sorted(report.paths) == [
        p for p in on_disk if p.endswith(".parquet") and p != remaining.path
    ]
    second_report = table.collect()
    assert (report.files, report.bytes, report.horizon_after) == (
        second_report.files,
        second_report.bytes,
        second_report.horizon_after,
    )


def test_an_interrupted_collection_can_be_repeated(make_table: MakeTable) -> None:
    for die_at in range(100):
        table = compact_table(make_table())
        previous = table.rows()
        table.clock.pass_minutes(30)
        table.ticks.count, table.ticks.die_at = 0, die_at
        try:
            table.collect()
        except Killed:
            table.reopen()
            assert table.rows() == previous
            report = table.collect()
            assert report.finished <= report.files <= 2
            assert len(table.paths_on_disk()) == OBJECTS_PER_FILE
            assert table.rows() == previous
            with table.store.reading() as state:
                assert state.collection.collecting(10) == []
        else:
            assert die_at > 8
            return
    pytest.fail("it never ended")


def test_an_interrupted_collection_is_finished_despite_a_newer_hold(
    table: DataTable,
) -> None:
    compact_table(table)
    table.clock.pass_minutes(30)

    def die() -> None:
        raise Killed

    table.watched.before_commit.append((FilesCollected, die))
    with pytest.raises(Killed):
        table.collect()
    hold(table, table.number())
    report = table.collect()
    assert (report.files, report.finished) == (2, 2)


def test_two_collectors_at_once_delete_everything_once(table: DataTable) -> None:
    compact_table(table)
    table.clock.pass_minutes(30)
    others = []
    table.watched.before_commit.append((CollectFiles, lambda: others.append(table.collect())))
    assert table.collect().files == 0
    assert [o.files for o in others] == [2]
    assert len(table.paths_on_disk()) == OBJECTS_PER_FILE


def test_missing_objects_are_no_error(table: DataTable) -> None:
    compact_table(table)
    remaining = table.files()[0].path
    folder: Path = table.root.folder
    for path in table.paths_on_disk():
        if not path.startswith(remaining):
            (folder / path).unlink()
    table.clock.pass_minutes(30)
    assert table.collect().files == 2
