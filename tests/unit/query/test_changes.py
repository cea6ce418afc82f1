"""The change feed through the Python API: every change once, in order, and none skipped."""

import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import sleeper
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.files import KeyFile, new_data_path
from sleeper.garbage_collection.service import collect_table
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.partitions.region import Range, Region
from sleeper.query.changes.plan import _group_files, plan_step
from sleeper.query.changes.read import Change
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.holds import Hold
from sleeper.statestore.transactions.delete_rows import DeleteRows
from tests.clock import FakeClock
from tests.tables.opened import KEY_AND_VALUE, compact
from tests.unit.conftest import MakeTable

pytestmark = pytest.mark.usefixtures("holds_of_reads")

PROPERTIES = {
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.compaction.files.batch.size": "2",
    "sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf",
}


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", KEY_AND_VALUE, PROPERTIES, split_points=[50])


def ingest(table: sleeper.Table, *keys: int, value: str = "", job_id: str | None = None) -> int:
    table.ingest(pa.table({"key": list(keys), "value": [value] * len(keys)}), job_id)
    return table.version


def compact_and_collect(instance: sleeper.Instance, clock: FakeClock) -> int:
    """Returns the number of files that were collected."""
    compact(instance)
    clock.pass_minutes(1)
    return collect_table(instance._ports, "rows").files


def keys(change: Change) -> list[int]:
    found: list[int] = change.rows["key"].to_pylist()
    return found


def read(table: sleeper.Table, follower: str | None = None) -> list[list[int]]:
    """Returns the keys of each transaction."""
    found: dict[int, list[int]] = {}
    for change in table.changes(follower=follower):
        found.setdefault(change.number, []).extend(keys(change))
    return list(found.values())


def test_ingests_and_deletes_come_in_order_with_their_numbers(table: sleeper.Table) -> None:
    first = ingest(table, 70, 3, value="a", job_id="monday")
    table.delete(keys=[[3]], ranges=[(60, None)], delete_id="erase")
    ingest(table, 4)
    changes = list(table.changes())
    assert [c.number for c in changes] == [first, first, first + 1, first + 2]
    assert [c.job for c in changes[:3]] == ["monday", "monday", "erase"]
    assert [c.operation for c in changes] == ["insert", "insert", "delete_region", "insert"]
    assert [keys(c) for c in changes] == [[3], [70], [], [4]]
    assert changes[0].rows.to_pylist() == [{"key": 3, "value": "a"}]
    assert changes[0].rows.schema.equals(table.arrow_schema)
    assert [c.time_ms for c in changes] == sorted(c.time_ms for c in changes)
    assert [r["key"]["min"] for r in changes[2].regions] == [3, 60]
    again = table.delete(regions=changes[2].regions)
    assert again.regions == 2


def test_replaying_the_feed_gives_the_table_at_each_number(table: sleeper.Table) -> None:
    ingest(table, *range(0, 100, 7))
    table.delete(ranges=[(10, 30)])
    ingest(table, 20, 21, 55)
    table.delete(keys=[[21], [55]])
    ingest(table, 55)
    rows: list[int] = []
    last = 1
    for change in table.changes():
        if change.number > last:
            assert rows == table.query(as_of=last).to_arrow()["key"].to_pylist()
        last = change.number
        for region in change.regions:
            low, high = region["key"]["min"], region["key"]["max"]
            rows = [k for k in rows if k < low or (high is not None and k >= high)]
        rows = sorted(rows + keys(change))
    assert rows == table.query().to_arrow()["key"].to_pylist()


def test_the_feed_has_replaced_files_and_no_compacted_ones(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    ingest(table, 1, 60)
    ingest(table, 2, 61)
    with table.changes(follower="f"):
        pass
    assert compact_and_collect(instance, clock) == 0
    ingest(table, 3)
    assert read(table) == [[1, 60], [2, 61], [3]]
    assert read(table, "f") == [[1, 60], [2, 61], [3]]
    assert compact_and_collect(instance, clock) == 4


def test_rows_of_overlapping_files_are_merged(make_table: MakeTable) -> None:
    table = make_table()
    table.ingest(range(0, 30, 2))
    table.ingest(range(1, 30, 2))
    table.ingest(range(40, 50))
    with table.store.reading() as state:
        step = plan_step(state, 0)
    scans = [scan for change in step.changes for leaf in change.leaves for scan in leaf.scans]
    groups = list(_group_files(step.schema, [scan.file for scan in scans]))
    assert [len(group.scans) for group in groups] == [2, 1]


def test_a_part_of_the_feed_is_selected_by_number_and_time(
    table: sleeper.Table, clock: FakeClock
) -> None:
    first = ingest(table, 1)
    clock.pass_minutes(60)
    second = ingest(table, 2)
    clock.pass_minutes(60)
    third = ingest(table, 3)

    def numbers(**part: object) -> list[int]:
        return [change.number for change in table.changes(**part)]  # type: ignore[arg-type]

    assert numbers(from_number=second) == [second, third]
    assert numbers(to_number=second) == [first, second]
    assert numbers(from_number=second, to_number=second) == [second]
    assert numbers(from_number=third + 1) == []
    moment = datetime.fromtimestamp((clock() - 60 * 60_000 - 1) / 1000, UTC)
    assert numbers(since=moment) == [second, third]
    assert numbers(since=moment.isoformat()) == [second, third]
    assert numbers(since="4w") == [first, second, third]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"from_number": 9}, "transaction 9 does not exist yet: the newest is 2"),
        ({"to_number": 9}, "transaction 9 does not exist yet: the newest is 2"),
        ({"from_number": 2, "to_number": 1}, "the end is 1 .expected the start, 2, or more"),
        ({"from_number": -1}, "the start is -1"),
        ({"to_number": 0}, "the end is 0"),
        ({"since": "2d", "from_number": 1}, "two starts: since 2d and transaction 1"),
        ({"since": "soon"}, "'soon': expected"),
        ({"since": "0s", "to_number": 1}, "end with transaction 1, before their start"),
        ({"since": 5}, "since 5: expected a time"),
        ({"since": "soon"}, "since 'soon': expected a time"),
        ({"follower": " "}, "invalid follower name: ' '"),
    ],
)
def test_impossible_parts_are_refused(
    table: sleeper.Table, part: dict[str, object], message: str
) -> None:
    ingest(table, 1)
    with pytest.raises(InvalidRequestError, match=message):
        table.changes(**part)  # type: ignore[arg-type]
    assert not table._instance.table("rows").state.followers()


def test_collected_changes_are_refused_with_the_oldest_number(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    ingest(table, 1)
    ingest(table, 2)
    clock.pass_minutes(5)
    assert compact_and_collect(instance, clock) == 2
    with table._instance.table("rows").state.reading() as state:
        horizon = state.horizon
    kept = f"changes are kept from transaction {horizon + 1} on"
    with pytest.raises(InvalidRequestError, match=f"transaction 1 are no longer kept: {kept}"):
        table.changes()
    with pytest.raises(InvalidRequestError, match=f"since 4w are no longer complete: {kept}"):
        table.changes(since="4w")
    ingest(table, 3)
    assert [keys(c) for c in table.changes(from_number=horizon + 1)] == [[3]]


def holds(table: sleeper.Table) -> list[Hold]:
    return list(table._instance.table("rows").state.holds.all())


@pytest.mark.parametrize("limit", ["_SMALL_ROWS", "_SMALL_FILES", "_SMALL_BYTES"])
def test_changes_that_are_read_are_kept_until_the_end_of_the_reader(
    instance: sleeper.Instance,
    table: sleeper.Table,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    monkeypatch.setattr(f"sleeper.query.changes.reader.{limit}", 1)
    ingest(table, 1)
    ingest(table, 2)
    reader = table.changes()
    changes = iter(reader)
    assert keys(next(changes)) == [1]
    assert compact_and_collect(instance, clock) == 0
    assert keys(next(changes)) == [2]
    reader.close()
    assert not holds(table)
    assert compact_and_collect(instance, clock) == 2


def test_a_reader_that_follows_keeps_the_changes_after_its_position(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    ingest(table, 1)
    reader = table.changes(follow=True)
    changes = iter(reader)
    assert keys(next(changes)) == [1]
    ingest(table, 2)
    assert compact_and_collect(instance, clock) == 0
    ingest(table, 3)
    assert [keys(next(changes)) for _ in range(2)] == [[2], [3]]
    reader.close()
    assert not holds(table)


def test_few_changes_are_read_at_once_and_need_no_hold(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    ingest(table, 1)
    number = ingest(table, 2)
    changes = iter(table.changes())
    assert keys(next(changes)) == [1]
    assert table.version == number
    assert compact_and_collect(instance, clock) == 2
    assert [keys(each) for each in changes] == [[2]]


def test_files_that_are_collected_while_they_are_read_are_explained(
    instance: sleeper.Instance,
    table: sleeper.Table,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._SMALL_ROWS", 1)
    ingest(table, 1)
    ingest(table, 2)
    changes = iter(table.changes())
    next(changes)
    (hold,) = holds(table)
    table._instance.table("rows").state.holds.release([hold.id])
    compact_and_collect(instance, clock)
    with pytest.raises(InvalidRequestError, match="transaction 3 are no longer kept"):
        next(changes)


def test_a_follower_continues_after_the_changes_that_were_taken(table: sleeper.Table) -> None:
    first = ingest(table, 1)
    ingest(table, 2)
    ingest(table, 3)
    changes = table.changes(follower="f")
    with changes:
        taken = iter(changes)
        assert [keys(next(taken)), keys(next(taken))] == [[1], [2]]
        assert changes.position == first
        changes.commit()
    # The second change was given, but the consumer did not confirm it by asking for the next.
    assert read(table, "f") == [[2], [3]]
    assert read(table, "f") == []
    assert [f.lag for f in table._instance.table("rows").state.followers()] == [0]


def test_a_new_follower_begins_at_the_stated_number_and_a_known_one_where_it_was(
    table: sleeper.Table,
) -> None:
    ingest(table, 1)
    second = ingest(table, 2)
    assert [keys(c) for c in table.changes(from_number=second, follower="f")] == [[2]]
    ingest(table, 3)
    assert [keys(c) for c in table.changes(from_number=1, follower="f")] == [[3]]


def test_a_consumer_that_fails_gets_the_change_again(table: sleeper.Table) -> None:
    ingest(table, 1)

    def fail() -> None:
        for _ in table.changes(follower="f"):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert read(table, "f") == [[1]]


def test_progress_is_recorded_within_a_step(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._ROWS_PER_COMMIT", 3)
    for key in range(4):
        ingest(table, key, key + 60)
    changes = iter(table.changes(follower="f"))
    for _ in range(5):  # the third transaction is being read
        next(changes)
    assert read(table, "f") == [[2, 62], [3, 63]]


def test_a_long_feed_is_read_in_steps(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.plan._CHANGES_PER_STEP", 2)
    for key in range(5):
        ingest(table, key)
    assert read(table, "f") == [[0], [1], [2], [3], [4]]


def test_a_following_reader_waits_for_new_transactions(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._SECONDS_BETWEEN_POLLS", 0.01)
    first = ingest(table, 1)
    found: list[list[int]] = []
    is_read = threading.Event()

    def follow() -> None:
        for change in table.changes(follow=True, to_number=first + 2):
            found.append(keys(change))
            is_read.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert is_read.wait(60)
    ingest(table, 2)
    ingest(table, 3)
    thread.join(60)
    assert not thread.is_alive()
    assert found == [[1], [2], [3]]


def test_a_following_reader_is_stopped(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._SECONDS_BETWEEN_POLLS", 60)
    ingest(table, 1)
    changes = table.changes(follow=True)
    thread = threading.Thread(target=lambda: list(changes))
    thread.start()
    changes.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_following_ends_at_rows_of_a_later_schema(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._SECONDS_BETWEEN_POLLS", 0.01)
    ingest(table, 1)
    with table.changes(follow=True, follower="f") as changes:
        following = iter(changes)
        assert keys(next(following)) == [1]
        table.rename_field("value", "new")
        table.ingest(pa.table({"key": [2], "new": [""]}))
        with pytest.raises(
            StateMovedOnError, match=r"transaction 4 changed the schema .* 5 on again"
        ):
            next(following)
    again = list(table.changes(follower="f"))
    assert [keys(each) for each in again][-1] == [2]
    assert again[-1].rows.schema.names == ["key", "new"]


def test_following_ends_when_the_table_is_deleted(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._SECONDS_BETWEEN_POLLS", 0.01)
    ingest(table, 1)
    changes = iter(table.changes(follow=True))
    next(changes)
    instance.delete_table("rows")
    with pytest.raises(StateMovedOnError, match="was deleted"):
        next(changes)


def test_quiet_transactions_move_a_follower(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    ingest(table, 1)
    ingest(table, 2)
    assert read(table, "f") == [[1], [2]]
    compact_and_collect(instance, clock)
    assert read(table, "f") == []
    assert compact_and_collect(instance, clock) > 0


def test_changes_as_arrow_rows(table: sleeper.Table) -> None:
    ingest(table, 1, value="a")
    table.delete(ranges=[(5, 7), (90, None)])
    changes = table.changes()
    rows = changes.to_reader().read_all()
    assert rows.schema.equals(changes.schema)
    assert rows.column_names == ["number", "time", "job", "operation", "row", "region"]
    assert rows["row"].to_pylist() == [{"key": 1, "value": "a"}, None, None]
    assert rows["region"].to_pylist() == [
        None,
        {"key": {"min": 5, "max": 7}},
        {"key": {"min": 90, "max": None}},
    ]
    ingest(table, 2)
    later = table.changes(from_number=table.version).to_arrow()
    assert later["row"].combine_chunks().field("key").to_pylist() == [2]


def test_an_empty_table_has_no_changes(table: sleeper.Table) -> None:
    assert list(table.changes()) == []
    assert table.changes().to_arrow().num_rows == 0


def test_many_regions_are_divided(table: sleeper.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sleeper.query.changes.read._REGIONS_PER_BATCH", 2)
    ingest(table, 1)
    table.delete(keys=[[1], [3], [5]])
    deletes = [c for c in table.changes() if c.operation == "delete_region"]
    assert [len(c.regions) for c in deletes] == [2, 1]


def test_a_replacement_is_a_mark_and_the_rows_of_the_table(table: sleeper.Table) -> None:
    ingest(table, 1, 60, job_id="good")
    kept = table.version
    ingest(table, 2, job_id="bad")
    table.delete(keys=[[60]])
    undone = table.undo("bad")
    restored = table.restore(kept)
    third = ingest(table, 3)
    emptied = table.reinitialise()
    changes = [(c.number, c.operation, keys(c)) for c in table.changes(from_number=kept + 3)]
    assert changes == [
        (undone.number, "replace", []),
        (undone.number, "insert", [1]),
        (restored.number, "replace", []),
        (restored.number, "insert", [1]),
        (restored.number, "insert", [60]),
        (third, "insert", [3]),
        (emptied.number, "replace", []),
    ]
    rows = table.changes(from_number=emptied.number or 0).to_arrow().to_pylist()
    assert [(r["operation"], r["row"], r["region"]) for r in rows] == [("replace", None, None)]


def test_a_step_ends_with_a_replacement(table: sleeper.Table) -> None:
    ingest(table, 1)
    for _ in range(2):
        ingest(table, 2)
        table.reinitialise()
    ingest(table, 3)
    assert read(table, "f") == [[1], [2], [], [2], [], [3]]


def test_deleted_keys_of_a_file(table: sleeper.Table, instance: sleeper.Instance) -> None:
    first = ingest(table, 1, 2, 3)
    state = instance._ports.table("rows").state
    path = _write_keys(instance, [1, 3])
    region = Region((Range(1, 4),))
    now_ms = instance._ports.clock()
    file = KeyFile(path, 2, 100, region)
    state.commit_or_raise(
        DeleteRows(id="d", regions=(Region((Range(7, 8),)),), keys=file, run_start_ms=now_ms)
    )
    regions, deleted = table.changes(from_number=first + 1)
    assert (regions.operation, len(regions.deleted)) == ("delete_region", 1)
    assert (deleted.operation, keys(deleted)) == ("delete", [1, 3])
    assert deleted.rows.column_names == ["key"]
    table.add_field("new", "LongType")
    *_, deleted = table.changes(from_number=first + 1)
    assert keys(deleted) == [1, 3]
    table.drop_field("new")
    rows = table.changes(from_number=first + 1).to_arrow()["row"].to_pylist()
    assert rows == [None, {"key": 1, "value": None}, {"key": 3, "value": None}]


def _write_keys(instance: sleeper.Instance, keys: list[int]) -> str:
    ports = instance._ports
    path = new_data_path(ports.table("rows").ref.id, ROOT_PARTITION_ID, ports.clock())
    schema = Schema((Field("key", PrimitiveType.LONG),))
    writer = DataFileWriter(ports.storage.root, path, schema, FileSettings())
    writer.write([pa.RecordBatch.from_pydict({"key": keys}, schema=arrow_schema(schema))])
    return writer.finish().path
