"""Collection of files of crashed runs, by age; referenced files are never deleted."""

import os
from collections.abc import Iterable

import pytest

from sleeper.errors import UnavailableError
from sleeper.files import DataFile, StoredObject, new_data_path
from sleeper.garbage_collection.orphans import collect_orphans
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.tables import TableId
from tests.clock import DAY_MS, START_MS
from tests.tables.data_table import OBJECTS_PER_FILE, DataTable
from tests.tables.watched_ports import TABLE_ID, Killed


def left_behind(table: DataTable, began_ms: int, *suffixes: str) -> str:
    """Writes a data file of a crashed run, or objects with these suffixes, modified just now."""
    path = new_data_path(TABLE_ID, ROOT, began_ms)
    for suffix in suffixes or ("",):
        put_object(table, path + suffix)
    return path


def put_object(table: DataTable, path: str, modified_ms: int = START_MS) -> str:
    full = table.root.folder / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_bytes(b"12345")
    os.utime(full, (modified_ms / 1000, modified_ms / 1000))
    return path


def die() -> None:
    raise Killed


def exists(table: DataTable, path: str) -> bool:
    return (table.root.folder / path).exists()


def test_rule_3_only_objects_of_old_runs_are_deleted(
    table: DataTable,
) -> None:
    old = left_behind(table, START_MS - 14 * DAY_MS - 1)
    young = left_behind(table, START_MS - 14 * DAY_MS)
    report = table.collect_orphans()
    assert (report.objects, report.bytes) == (1, 5)
    assert not exists(table, old)
    assert exists(table, young)


def test_rule_3_files_of_the_state_are_kept_at_any_age(table: DataTable) -> None:
    table.ingest(range(10))
    table.ingest(range(10))
    table.compact(full=True)
    table.clock.pass_minutes(20 * 24 * 60)
    previous = table.paths_on_disk()
    assert table.collect_orphans().objects == 0
    assert table.paths_on_disk() == previous


def test_rule_3_a_file_committed_after_it_was_listed_is_kept(table: DataTable) -> None:
    """A commit so old is refused; the order of looking keeps the file even so."""
    (file,) = table.ingest(range(10))
    table.clock.pass_minutes(20 * 24 * 60)
    log = []

    def listing(table_id: TableId) -> Iterable[StoredObject]:
        log.append("list")
        return table.root.objects(table_id)

    original = table.watched.reading

    def read_and_ingest(version: int | None = None) -> object:
        log.append("read")
        return original(version)

    table.watched.reading = read_and_ingest  # type: ignore[method-assign, assignment]
    collect_orphans(
        TABLE_ID, table.store, table.properties, listing, table.root.delete, table.clock
    )
    assert log[-2:] == ["list", "read"]
    assert exists(table, file.path)


def test_rule_3_a_collector_with_a_jumped_clock_never_deletes_files_that_commit_later(
    table: DataTable,
) -> None:
    """The run's clock is right. Its commit is refused, because its files were deleted."""
    running = left_behind(table, table.clock())
    file = DataFile(running, 1, 5, (1,), (1,))
    job = AddFiles("running", table.clock(), (NewFile(file, ((ROOT, 1),)),))
    ahead_ms = table.clock() + 20 * DAY_MS
    collector = open_state_store(table.root.folder / TABLE_ID / "state.db", lambda: ahead_ms)
    collect_orphans(
        TABLE_ID,
        collector,
        table.properties,
        table.root.objects,
        table.root.delete,
        lambda: ahead_ms,
    )
    collector.close()
    assert not exists(table, running)
    (outcome,) = table.store.commit(job)
    assert outcome.refused
    assert table.row_keys() == []


def test_rule_3_the_bar_is_committed_before_anything_is_deleted(table: DataTable) -> None:
    left_behind(table, START_MS)
    table.clock.pass_minutes(15 * 24 * 60)
    result = list(table.root.objects(TABLE_ID))
    bars: list[int] = []

    def delete(paths: list[str]) -> None:
        with table.store.reading() as state:
            bars.append(state.run_bar_ms)
        table.root.delete(paths)

    collect_orphans(TABLE_ID, table.store, table.properties, lambda _: result, delete, table.clock)
    assert bars == [table.clock() - 14 * DAY_MS]


def test_rule_3_a_clock_that_is_implausibly_ahead_collects_nothing(table: DataTable) -> None:
    running = left_behind(table, table.clock())
    table.clock.pass_minutes(400 * 24 * 60)
    with pytest.raises(UnavailableError, match="accept-time"):
        table.collect_orphans()
    assert exists(table, running)


def test_collection_of_an_idle_table_keeps_its_log_time_current(table: DataTable) -> None:
    """Otherwise the first commit after a long time without any would be a jump."""
    for _ in range(5):
        table.clock.pass_minutes(20 * 24 * 60)
        table.collect_orphans()
        table.collect_orphans()
    table.ingest(range(10))
    assert table.row_keys() == [(k,) for k in range(10)]
    with table.store.reading() as state:
        assert state.number == 1 + 5 + 1


def test_sidecars_follow_their_data_file(table: DataTable) -> None:
    (file,) = table.ingest(range(10))
    put_object(table, file.path + ".filter")
    alone = left_behind(table, START_MS, ".sketches", ".filter")
    table.clock.pass_minutes(15 * 24 * 60)
    table.collect_orphans()
    assert exists(table, file.path + ".sketches")
    assert exists(table, file.path + ".filter")
    assert not exists(table, alone + ".sketches")
    assert not exists(table, alone + ".filter")


def test_objects_without_a_run_start_age_by_their_modification_time(table: DataTable) -> None:
    old = put_object(table, f"{TABLE_ID}/data/partition_root/what", START_MS - 15 * DAY_MS)
    young = put_object(table, f"{TABLE_ID}/data/partition_root/that", START_MS - 13 * DAY_MS)
    table.collect_orphans()
    assert not exists(table, old)
    assert exists(table, young)


def test_state_and_whole_snapshots_are_never_orphans_but_torn_ones_are(table: DataTable) -> None:
    whole = put_object(table, f"{TABLE_ID}/snapshots/{7:019d}-0a1b2c3d-0123456789abcdef.db.zst", 0)
    torn = put_object(table, whole + "#1", 0)
    stray = put_object(table, f"{TABLE_ID}/lost+found", 0)
    table.clock.pass_minutes(15 * 24 * 60)
    assert table.collect_orphans().objects == 1
    assert exists(table, whole)
    assert exists(table, stray)
    assert not exists(table, torn)
    assert exists(table, f"{TABLE_ID}/state.db")


def test_other_tables_are_unchanged(table: DataTable) -> None:
    other = put_object(table, "ffffffff/data/partition_root/x", 0)
    listing = [StoredObject(other, 5, 0)]
    report = collect_orphans(
        TABLE_ID, table.store, table.properties, lambda _: listing, table.root.delete, table.clock
    )
    assert report.objects == 0
    assert exists(table, other)


def test_a_dry_run_lists_orphans_and_deletes_none(table: DataTable) -> None:
    path = left_behind(table, START_MS, "", ".sketches")
    table.clock.pass_minutes(15 * 24 * 60)
    report = table.collect_orphans(dry_run=True)
    assert sorted(report.paths) == [path, path + ".sketches"]
    assert exists(table, path)
    assert table.collect_orphans().objects == 2


def test_orphans_are_deleted_in_batches_and_may_be_interrupted(table: DataTable) -> None:
    table.set(sleeper__gc__batch__size=2)
    for _ in range(5):
        left_behind(table, START_MS)
    table.ingest(range(10))
    table.clock.pass_minutes(15 * 24 * 60)
    table.ticks.count, table.ticks.die_at = 0, 14
    with pytest.raises(Killed):
        table.collect_orphans()
    table.reopen()
    left = len(table.paths_on_disk()) - OBJECTS_PER_FILE
    assert 0 < left < 5
    assert table.collect_orphans().objects == left
    assert table.row_keys() == [(k,) for k in range(10)]


def test_files_of_a_killed_compaction_become_orphans(table: DataTable) -> None:
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs(full=True)
    table.watched.before_commit.append((CommitCompaction, die))
    with pytest.raises(Killed):
        table.run_all()
    table.reopen()
    assert len(table.paths_on_disk()) > 2 * OBJECTS_PER_FILE
    assert table.collect_orphans().objects == 0
    table.clock.pass_minutes(15 * 24 * 60)
    assert table.collect_orphans().objects > 0
    assert len(table.paths_on_disk()) == 2 * OBJECTS_PER_FILE
