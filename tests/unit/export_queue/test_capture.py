"""Capturing exports of the changes of a table."""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import NotFoundError, UnavailableError
from sleeper.export_queue import changed_keys
from sleeper.export_queue.capture import CaptureReport, capture_exports
from sleeper.export_queue.changed_keys import ChangedKeys, Rank
from sleeper.export_queue.definition import EXPORT_QUEUES, ExportSource
from sleeper.export_queue.local.store import LocalExportStore
from sleeper.export_queue.registration import find_queue
from sleeper.export_queue.rows import decode_rows
from sleeper.export_queue.store import Position, open_export_store
from sleeper.export_queue.transactions import CreateExportQueue
from sleeper.export_queue.version_hold import find_holds
from sleeper.garbage_collection.service import collect_table
from sleeper.local.instance import open_local_instance
from sleeper.query.hold import release_hold
from sleeper.statestore.store import StateStore
from tests.clock import FakeClock
from tests.tables.opened import KEY_AND_VALUE, compact
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue

TIME = {"name": "time", "type": "LongType"}
REMOVED = pa.schema([("key", pa.int64()), ("value", pa.string()), ("op", pa.string())])


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[sleeper.Instance]:
    """An open instance of the Python API."""
    sleeper.create_instance(tmp_path / "instance").close()
    with sleeper.Instance(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", KEY_AND_VALUE, split_points=[50])


def follow(
    instance: sleeper.Instance, table: sleeper.Table, keys: str, values: str = "", **more: Any
) -> Receiver:
    queue = define_queue(table, keys, values, **more)
    create_queue(instance._ports, "rows", queue)
    return Receiver(instance._ports, queue)


def ingest(table: sleeper.Table, **rows: str) -> int:
    """Adds rows, named as `k1="value"`. Returns the number."""
    keys = [int(key[1:]) for key in rows]
    table.ingest(pa.table({"key": keys, "value": list(rows.values())}))
    return table.version


def test_added_rows_are_exported_once_with_the_number_of_their_transaction(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, k1="before")
    receiver = follow(instance, table, "key", "value")
    first, second = ingest(table, k2="a", k70="b"), ingest(table, k2="c")
    assert receiver.take() == CaptureReport(3, second, True)
    expected = [(first, (2,), ("a",)), (first, (70,), ("b",)), (second, (2,), ("c",))]
    assert sorted(receiver.exports) == expected
    assert receiver.take() == CaptureReport(0, second, True)


def test_the_last_row_of_a_key_in_a_transaction_is_exported(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "value", "key")
    number = ingest(table, k3="a", k1="a", k70="b", k2="a")
    receiver.take()
    assert sorted(receiver.exports) == [(number, ("a",), (3,)), (number, ("b",), (70,))]


def test_a_key_is_exported_as_gone_when_its_last_row_went(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "value", "key")
    ingest(table, k1="a", k2="b", k60="a", k3="c")
    receiver.take()
    receiver.exports.clear()
    table.delete(ranges=[(2, None)])
    receiver.take()
    number = table.version
    expected = [(number, ("a",), (1,)), (number, ("b",), None), (number, ("c",), None)]
    assert sorted(receiver.exports, key=str) == expected


def test_a_version_is_read_before_a_delete_although_the_queue_is_late(
    instance: sleeper.Instance, clock: FakeClock
) -> None:
    properties = {"sleeper.table.gc.delay.minutes": "0", "sleeper.table.follower.retention": "1m"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    ingest(table, k1="a", k2="b")
    receiver = follow(instance, table, "key", "value")
    table.delete(keys=[[1]])
    for _ in range(3):
        compact(instance)
        clock.pass_minutes(60)
        collect_table(instance._ports, "rows")
    assert receiver.take().exports == 1
    assert receiver.exports[0][1:] == ((1,), None)
    compact(instance)
    clock.pass_minutes(60)
    assert collect_table(instance._ports, "rows").files > 0


@pytest.mark.slow
def test_deletes_of_more_keys_than_are_looked_up_one_by_one(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "value", "key")
    table.ingest(pa.table({"key": range(3000), "value": [str(n % 1500) for n in range(3000)]}))
    table.delete(keys=[[n] for n in range(1400)])
    receiver.take()
    assert len(receiver.rows) == 1500
    table.delete(keys=[[n] for n in range(1400, 2900)])
    receiver.take()
    assert set(receiver.rows) == {(str(n - 1500),) for n in range(2900, 3000)}


def test_a_refused_transaction_exports_nothing(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "key", "value")
    table.ingest(pa.table({"key": [1], "value": ["a"]}), job_id="once")
    table.ingest(pa.table({"key": [1], "value": ["a"]}), job_id="once")
    assert receiver.take().exports == 1


def test_lag_ends_without_exports(instance: sleeper.Instance, table: sleeper.Table) -> None:
    receiver = follow(instance, table, "key")
    ingest(table, k1="a")
    receiver.take()
    compact(instance)
    assert receiver.take() == CaptureReport(0, table.version, True)
    (follower,) = table._instance.table("rows").state.followers()
    assert follower.lag == 0


def test_a_cursor_that_a_dead_process_left_behind_is_advanced(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = follow(instance, table, "key")
    ingest(table, k1="a")
    state = instance._ports.table("rows").state
    with monkeypatch.context() as patch:
        patch.setattr(StateStore, "advance_follower", fail)
        with pytest.raises(UnavailableError):
            receiver.take()
    assert state.followers()[0].lag == 1
    assert receiver.take() == CaptureReport(0, table.version, True)
    assert state.followers()[0].lag == 0
    assert len(receiver.exports) == 1


def test_a_repeated_step_stores_the_same_items_again(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = follow(instance, table, "key", "value")
    ingest(table, k1="a", k2="b", k70="c")
    store, name = open_export_store(instance._ports), receiver.queue.name
    add = LocalExportStore.add

    def add_and_die(self: LocalExportStore, name: str, generation: int, *more: Any) -> None:
        position = self.find(name).position
        add(self, name, generation, more[0], position)
        raise UnavailableError("died before the position was stored")

    with monkeypatch.context() as patch:
        patch.setattr(LocalExportStore, "add", add_and_die)
        with pytest.raises(UnavailableError):
            capture_exports(instance._ports, name)
    before = [store.read(name, each.bucket, 10**9) for each in store.buckets(name)]
    assert capture_exports(instance._ports, name).exports == 3
    assert [store.read(name, each.bucket, 10**9) for each in store.buckets(name)] == before


def test_an_item_that_is_exported_is_not_replaced_by_one_with_more_exports(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = follow(instance, table, "key", "value", buckets=1)
    store, name = open_export_store(instance._ports), receiver.queue.name
    ingest(table, k1="a")
    with monkeypatch.context() as patch:
        add = LocalExportStore.add
        patch.setattr(
            LocalExportStore, "add", lambda s, n, g, items, _to: add(s, n, g, items, Position(0))
        )
        capture_exports(instance._ports, name)
    read = [item.id for item in store.read(name, 0, 10**9)]
    # A worker has read the item. Another one repeats the step, with a later transaction.
    ingest(table, k2="b")
    capture_exports(instance._ports, name)
    assert store.claim(name, 0, "receiver", 60)
    store.settle(name, 0, "receiver", read)
    store.release(name, 0, "receiver")
    receiver.receive()
    assert receiver.rows[(2,)] == ("b",)


def test_items_are_not_larger_than_the_buffer(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "key", "value", buckets=2, buffer_bytes=1000)
    table.ingest(
        pa.table({"key": range(40), "value": ["v" * 100 for _ in range(39)] + ["w" * 2000]})
    )
    capture_exports(instance._ports, "q")
    store = open_export_store(instance._ports)
    items = [item for b in store.buckets("q") for item in store.read("q", b.bucket, 10**9)]
    rows = [decode_rows(receiver.queue, item.content) for item in items]
    assert sum(each.num_rows for each in rows) == 40
    assert all(each.num_rows <= 9 for each in rows)
    assert [each.num_rows for each in rows if "w" * 2000 in each["value"].to_pylist()] == [1]


def test_nothing_is_captured_while_too_many_bytes_wait(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "key", "value")
    instance._ports.change_properties({"sleeper.export.queue.pending.bytes.max": str(1024**2)})
    text = [secrets.token_hex(4000) for _ in range(300)]
    table.ingest(pa.table({"key": range(300), "value": text}))
    assert capture_exports(instance._ports, "q").problem is None
    ingest(table, k1="last")
    report = capture_exports(instance._ports, "q")
    assert not report.is_complete
    assert report.exports == 0
    assert "(sleeper.export.queue.pending.bytes.max allows 1,048,576)" in str(report.problem)
    receiver.receive()
    assert receiver.take() == CaptureReport(1, table.version, True)
    assert receiver.rows[(1,)] == ("last",)


def test_existing_rows_are_exported_with_the_number_of_the_creation(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, k1="a", k2="b")
    table.delete(keys=[[2]])
    receiver = follow(instance, table, "key", "value", existing_rows=True)
    created = table.version
    ingest(table, k3="c")
    receiver.take()
    assert sorted(receiver.exports) == [(created, (1,), ("a",)), (created + 1, (3,), ("c",))]


@pytest.mark.slow
def test_a_large_transaction_goes_on_after_the_last_whole_bucket(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "MEMORY_BYTES", 4000)
    monkeypatch.setattr(changed_keys, "_CHUNK_BYTES", 2000)
    monkeypatch.setattr("sleeper.export_queue.capture._STEP_BYTES", 1)
    receiver = follow(instance, table, "key", "value")
    table.ingest(pa.table({"key": range(1000), "value": [str(n) for n in range(1000)]}))
    calls = 0
    while not (report := receiver.take(seconds_max=0)).is_complete:
        assert report.exports > 0
        assert report.number < table.version
        calls += 1
    assert calls > 10
    assert len(receiver.rows) == 1000
    # A bucket that a call had not finished is exported again by the next one.
    assert len(receiver.exports) < 2000


def test_rows_have_the_fields_of_their_time(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.add_field("extra", "IntType")
    receiver = follow(instance, table, "key", "value,extra")
    table.ingest(pa.table({"key": [1], "value": ["a"], "extra": pa.array([7], pa.int32())}))
    table.rename_field("value", "text")
    table.ingest(pa.table({"key": [2], "text": ["b"], "extra": pa.array([8], pa.int32())}))
    table.drop_field("extra")
    table.ingest(pa.table({"key": [3], "text": ["c"]}))
    report = receiver.take()
    assert report.is_complete
    assert "exported as null, because the table dropped them: fields extra" in str(report.problem)
    assert receiver.rows == {(1,): ("a", 7), (2,): ("b", 8), (3,): ("c", None)}


def test_a_dropped_key_field_stops_the_queue(instance: sleeper.Instance) -> None:
    table = instance.create_table("rows", KEY_AND_VALUE)
    table.add_field("extra", "IntType")
    receiver = follow(instance, table, "value", "key")
    ingest(table, k1="a")
    table.drop_field("value")
    table.ingest(pa.table({"key": [2]}))
    report = receiver.take()
    assert (report.exports, report.is_complete) == (1, False)
    assert "the table has dropped the key field 'value': delete the queue" in str(report.problem)
    assert receiver.rows == {("a",): (1,)}


def test_a_widened_value_that_does_not_fit_stops_the_queue(instance: sleeper.Instance) -> None:
    table = instance.create_table("rows", KEY_AND_VALUE)
    table.add_field("extra", "IntType")
    receiver = follow(instance, table, "key", "extra")
    table.widen_field("extra", "LongType")
    table.ingest(pa.table({"key": [1], "value": ["a"], "extra": [5]}))
    assert receiver.take().problem is None
    table.ingest(pa.table({"key": [1], "value": ["a"], "extra": [2**40]}))
    report = receiver.take()
    assert not report.is_complete
    assert "field 'extra' was widened, and a value does not fit" in str(report.problem)
    assert receiver.rows == {(1,): (5,)}


def test_a_queue_whose_creation_has_not_ended_takes_nothing_up(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    queue = define_queue(table, "key")
    ports = instance._ports.table("rows")
    open_export_store(instance._ports).register("q", str(ports.ref.id))
    definition = EXPORT_QUEUES.format(queue)
    ports.state.commit(CreateExportQueue("q", "ingest", definition))
    assert "create it again" in str(capture_exports(instance._ports, "q").problem)


def test_an_unknown_queue_is_an_error(instance: sleeper.Instance) -> None:
    with pytest.raises(NotFoundError, match="'q'"):
        capture_exports(instance._ports, "q")


def test_compacted_rows_are_exported_and_keys_that_no_output_has_are_gone(
    instance: sleeper.Instance,
) -> None:
    properties = {"sleeper.table.rows": "latest", "sleeper.table.gc.delay.minutes": "0"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties, split_points=[50])
    receiver = follow(instance, table, "key", "value", source=ExportSource.COMPACTION)
    ingest(table, k1="a", k2="b", k60="c")
    ingest(table, k1="A", k3="d", k60="C")
    removed = pa.table({"key": [2], "value": [None], "op": ["d"]}, schema=REMOVED)
    table.ingest(removed, op_column="op")
    assert receiver.take().exports == 0
    compact(instance)
    assert receiver.take().is_complete
    found = {key: value for _, key, value in receiver.exports}
    assert found == {(1,): ("A",), (2,): None, (3,): ("d",), (60,): ("C",)}
    table.delete(keys=[[3], [60]])
    assert receiver.take().exports == 0
    ingest(table, k1="again", k60="new")
    compact(instance)
    receiver.take()
    assert receiver.rows == {(1,): ("again",), (60,): ("new",)}


def test_compactions_export_the_rows_that_aggregations_leave(instance: sleeper.Instance) -> None:
    schema = {**KEY_AND_VALUE, "valueFields": [{"name": "count", "type": "LongType"}]}
    properties = {"sleeper.table.aggregations": "sum(count)"}
    table = instance.create_table("rows", schema, properties)
    receiver = follow(instance, table, "key", "count", source=ExportSource.COMPACTION)
    for _ in range(3):
        table.ingest(pa.table({"key": [1, 2], "count": [1, 10]}))
    compact(instance)
    receiver.take()
    assert receiver.rows == {(1,): (3,), (2,): (30,)}


def test_each_version_of_a_snapshot_table_replaces_the_keys_of_the_last_one(
    instance: sleeper.Instance, clock: FakeClock
) -> None:
    properties = {
        "sleeper.table.type": "snapshot",
        "sleeper.table.snapshot.min.versions": "1",
        "sleeper.table.gc.delay.minutes": "0",
    }
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    receiver = follow(instance, table, "key", "value", source=ExportSource.SNAPSHOT)
    ingest(table, k1="a", k2="b")
    receiver.take()
    # The exported version is kept until its keys are compared, the one after it expires.
    for rows in ({"k2": "B", "k9": "x"}, {"k2": "BB", "k3": "c"}):
        ingest(table, **rows)
        clock.pass_minutes(1)
        table.expire_snapshots()
        clock.pass_minutes(1)
        collect_table(instance._ports, "rows")
    assert len(table.snapshot_versions()) == 2
    assert receiver.take().problem is None
    assert {key: value for _, key, value in receiver.exports[2:]} == {
        (1,): None,
        (2,): ("BB",),
        (3,): ("c",),
    }
    while receiver.take().exports or instance._ports.table("rows").state.followers()[0].lag:
        pass
    state = instance._ports.table("rows").state
    (hold,) = state.holds.all()
    with state.reading() as opened:
        assert opened.snapshots.find_version(hold.version) == table.snapshot_versions()[0].number
    release_all(state)
    assert state.holds.all() == []


@pytest.mark.parametrize("existing_rows", [False, True])
def test_the_version_at_a_queues_creation_is_kept_until_the_first_capture(
    instance: sleeper.Instance, clock: FakeClock, existing_rows: bool
) -> None:
    properties = {"sleeper.table.type": "snapshot", "sleeper.table.gc.delay.minutes": "0"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    created = ingest(table, k1="a", k2="b") + 1
    instance.create_export_queue(
        "q", "rows", "snapshot", "key", "value", exporter="null:", existing_rows=existing_rows
    )
    newest = ingest(table, k2="B", k3="c")
    clock.pass_minutes(1)
    table.expire_snapshots()
    clock.pass_minutes(1)
    collect_table(instance._ports, "rows")
    receiver = Receiver(instance._ports, find_queue(instance._ports, "q").definition)
    assert receiver.take().problem is None
    former = {(created, (1,), ("a",)), (created, (2,), ("b",))} if existing_rows else set()
    changed = {(newest, (1,), None), (newest, (2,), ("B",)), (newest, (3,), ("c",))}
    assert set(receiver.exports) == former | changed


def test_keys_are_compared_with_the_exported_version_if_later_ones_expired(
    instance: sleeper.Instance, clock: FakeClock
) -> None:
    properties = {
        "sleeper.table.type": "snapshot",
        "sleeper.table.snapshot.ttl": "1h",
        "sleeper.table.gc.delay.minutes": "0",
    }
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    receiver = follow(instance, table, "key", "value", source=ExportSource.SNAPSHOT)
    ingest(table, k1="a", k2="b")
    receiver.take()
    ingest(table, k3="never exported")
    clock.pass_minutes(61)
    table.expire_snapshots()
    clock.pass_minutes(1)
    collect_table(instance._ports, "rows")
    receiver.take()
    newest = ingest(table, k2="B")
    assert receiver.take().problem is None
    assert set(receiver.exports[2:]) == {(newest, (1,), None), (newest, (2,), ("B",))}


def release_all(store: StateStore) -> None:
    held = find_holds(store, "q")
    assert held
    for hold_id in held:
        release_hold(store, hold_id)


def test_a_lost_hold_is_a_problem_and_no_error(
    instance: sleeper.Instance, clock: FakeClock
) -> None:
    properties = {"sleeper.table.type": "snapshot", "sleeper.table.snapshot.min.versions": "1"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    receiver = follow(instance, table, "key", "value", source=ExportSource.SNAPSHOT)
    ingest(table, k1="a")
    receiver.take()
    release_all(instance._ports.table("rows").state)
    ingest(table, k2="b")
    clock.pass_minutes(1)
    table.expire_snapshots()
    report = receiver.take()
    assert report.is_complete
    assert "are not exported: the version of transaction" in str(report.problem)
    assert receiver.rows == {(1,): ("a",), (2,): ("b",)}


def test_exports_of_transactions_leave_with_their_number(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    queue = define_queue(table, "key", "value", source=ExportSource.TRANSACTION)
    create_queue(instance._ports, "rows", queue)
    receiver = Receiver(instance._ports, queue)
    numbers = []
    for key, value in [(1, "a"), (1, "b"), (2, "c")]:
        with table.transaction() as transaction:
            transaction.ingest(pa.table({"key": [key], "value": [value]}))
            transaction.export("q", key, value)
            transaction.export("q", 70 + key, None)
        numbers.append(table.version)
    assert receiver.take() == CaptureReport(6, table.version, True)
    expected = [
        *((n, (k,), (v,)) for n, k, v in zip(numbers, [1, 1, 2], "abc", strict=True)),
        *((n, (k,), None) for n, k in zip(numbers, [71, 71, 72], strict=True)),
    ]
    assert sorted(receiver.exports, key=str) == sorted(expected, key=str)


def fail(_self: StateStore, _name: str, _to: int) -> None:
    raise UnavailableError("died")


def test_small_ingests_that_are_read_together_keep_their_numbers(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    receiver = follow(instance, table, "value", "key")
    ingest(table, k1="first")
    numbers = [ingest(table, k1="a", k2="a", k60="b"), ingest(table, k3="a", k1="a")]
    receiver.take()
    expected = [
        (numbers[0] - 1, ("first",), (1,)),
        (numbers[0], ("a",), (2,)),
        (numbers[0], ("b",), (60,)),
        (numbers[1], ("a",), (3,)),
    ]
    assert sorted(receiver.exports) == expected


def test_only_rows_that_a_table_of_latest_rows_shows_are_exported(
    instance: sleeper.Instance,
) -> None:
    schema = {**KEY_AND_VALUE, "valueFields": [*KEY_AND_VALUE["valueFields"], TIME]}
    properties = {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "time"}
    table = instance.create_table("rows", schema, properties)
    receiver = follow(instance, table, "key", "value")
    for time, value in [(5, "newest"), (3, "late"), (7, "newer")]:
        table.ingest(pa.table({"key": [1], "value": [value], "time": [time]}))
        receiver.take()
        assert receiver.rows == {(1,): ("newer" if time == 7 else "newest",)}
    table.delete(keys=[[1]])
    receiver.take()
    assert receiver.rows == {}


def test_a_changed_value_in_a_key_makes_the_former_key_gone(instance: sleeper.Instance) -> None:
    table = instance.create_table("rows", KEY_AND_VALUE, {"sleeper.table.rows": "latest"})
    receiver = follow(instance, table, "value", "key")
    ingest(table, k1="a", k2="a", k3="b")
    receiver.take()
    number = ingest(table, k2="c", k3="d")
    receiver.exports.clear()
    receiver.take()
    assert sorted(receiver.exports, key=str) == [
        (number, ("a",), (1,)),
        (number, ("b",), None),
        (number, ("c",), (2,)),
        (number, ("d",), (3,)),
    ]


def test_rows_that_remain_are_exported_only_for_former_keys(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    queue = define_queue(table, "key", "value")
    rows = pa.RecordBatch.from_pylist(
        [{"key": n, "value": "x"} for n in (1, 2, 3)], schema=table.arrow_schema
    )
    engine = instance._ports.queries.engine().settings.engine
    with ChangedKeys(queue, 9, engine) as keys:
        keys.add(Rank.REMAINING, rows)
        keys.add(Rank.FORMER, rows.slice(1, 1))
        keys.add(Rank.NEW, rows.slice(2))
        (part,) = keys.parts()
    assert part.rows["key"].to_pylist() == [2, 3]
    assert part.bucket == queue.buckets


@pytest.mark.slow
def test_several_workers_may_capture_at_once(
    instance: sleeper.Instance, table: sleeper.Table, clock: FakeClock
) -> None:
    receiver = follow(instance, table, "key", "value", buckets=3)
    written = threading.Event()
    errors: list[Exception] = []

    def work() -> None:
        try:
            while not (capture_exports(instance._ports, "q").is_complete and written.is_set()):
                pass
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for n in range(30):
        table.ingest(pa.table({"key": [n, n % 5], "value": [f"a{n}", f"b{n}"]}))
        if n % 10 == 9:
            table.delete(keys=[[n]])
            compact(instance)
            clock.pass_minutes(60)
            collect_table(instance._ports, "rows")
    written.set()
    for worker in workers:
        worker.join()
    assert errors == []
    receiver.receive()
    assert receiver.rows.keys() == {(key,) for key in table.query().to_arrow()["key"].to_pylist()}
    assert receiver.take() == CaptureReport(0, table.version, True)
