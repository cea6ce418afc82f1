"""Transactions in Python: what they read, what they change, and what they export."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.properties import set_table_properties
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.export_queue.attached import EXPORT_BYTES_MAX
from sleeper.export_queue.definition import (
    EXPORT_QUEUES,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.sources import read_exports
from sleeper.export_queue.transactions import CreateExportQueue, DeleteExportQueue
from sleeper.garbage_collection.service import collect_table
from sleeper.opening import open_instance
from sleeper.properties.table import COLLECTION_DELAY_MINUTES
from sleeper.schema.model import DecimalType, Field, FieldType, ListType, MapType, PrimitiveType
from sleeper.statestore.store import StateStore
from tests.tables.opened import compact_fully

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
LONG, STRING = PrimitiveType.LONG, PrimitiveType.STRING


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("counts", SCHEMA)


@pytest.fixture
def state(table: sleeper.Table, tmp_path: Path) -> Iterator[StateStore]:
    """The state of the table, of another process so to say."""
    ports = open_instance(str(tmp_path / "instance"))
    yield ports.table("counts").state
    ports.close()


def rows(**counts: int) -> pa.Table:
    return pa.table(
        {"k": pa.array(counts, pa.string()), "n": pa.array(counts.values(), pa.int64())}
    )


def content(table: sleeper.Table, **arguments: Any) -> dict[str, int]:
    return {row["k"]: row["n"] for row in table.query(**arguments).to_arrow().to_pylist()}


def add_queue(
    state: StateStore,
    name: str = "out",
    keys: tuple[Field, ...] = (Field("k", STRING),),
    values: tuple[Field, ...] = (Field("n", LONG, nullable=True),),
    source: ExportSource = ExportSource.TRANSACTION,
) -> None:
    queue = ExportQueue(name, source, keys, values, ExporterSettings("null:"))
    state.commit_or_raise(CreateExportQueue(name, source.value, EXPORT_QUEUES.format(queue)))


def exported(state: StateStore) -> list[tuple[int, str, list[Mapping[str, Any]]]]:
    """The exports of the log: number, queue and rows."""
    found = []
    for each in read_exports(state, 0).exports:
        for exports in each.queues:
            with pa.ipc.open_stream(exports.rows) as reader:
                found.append((each.number, exports.queue, reader.read_all().to_pylist()))
    return found


def test_changes_of_a_transaction_are_committed_together(
    table: sleeper.Table, state: StateStore
) -> None:
    add_queue(state)
    table.ingest(rows(a=1, b=2))
    before = table.version
    with table.transaction() as transaction:
        transaction.delete(keys=[["a"]])
        transaction.ingest(rows(c=3))
        transaction.export("out", "a", None)
        transaction.export("out", "c", 3)
        assert content(table) == {"a": 1, "b": 2}
    number = transaction.number
    assert content(table) == {"b": 2, "c": 3}
    assert content(table, as_of=before) == {"a": 1, "b": 2}
    assert number == table.version == before + 3
    gone, there = {"__gone": True, "k": "a", "n": None}, {"__gone": False, "k": "c", "n": 3}
    assert exported(state) == [(number, "out", [gone, there])]


def test_a_transaction_replaces_the_rows_that_it_deletes(table: sleeper.Table) -> None:
    table.ingest(rows(a=1))
    with table.transaction() as transaction:
        transaction.ingest(rows(a=2))
        transaction.delete(keys=[["a"]])
        assert [row["n"] for row in transaction.query().to_pylist()] == [2]
    assert content(table) == {"a": 2}


def test_an_exception_discards_all_changes(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state)
    before = table.version
    transaction = table.transaction()

    def fail() -> None:
        with transaction:
            transaction.ingest(rows(a=1))
            transaction.export("out", "a", 1)
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert table.version == before
    assert transaction.number is None
    assert exported(state) == []


def test_reads_are_of_the_version_at_the_beginning(table: sleeper.Table) -> None:
    table.ingest(rows(a=1))
    with table.transaction() as transaction:
        table.ingest(rows(b=2))
        found = transaction.query().to_arrow().column("k").to_pylist()
    assert found == ["a"]
    assert transaction.number == transaction.version


def test_a_change_of_rows_that_were_read_is_a_conflict(
    table: sleeper.Table, state: StateStore
) -> None:
    add_queue(state)
    table.ingest(rows(a=1))
    transaction = table.transaction()
    transaction.query(keys=[["a"]])
    table.delete(keys=[["a"]])
    transaction.ingest(rows(a=2))
    transaction.export("out", "a", 2)
    with pytest.raises(ConflictError, match="rows that it read were changed"):
        transaction.commit()
    assert content(table) == {}
    assert exported(state) == []


def test_a_refused_transaction_leaves_no_files(table: sleeper.Table, tmp_path: Path) -> None:
    table.ingest(rows(**{f"key{n:05d}": n for n in range(3_000)}))
    transaction = table.transaction()
    transaction.query(keys=[["a"]])
    table.ingest(rows(a=1))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    transaction.delete(keys=[[f"key{n:05d}"] for n in range(3_000)])
    transaction.ingest(rows(a=2))
    with pytest.raises(ConflictError):
        transaction.commit()
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_change_of_other_rows_is_no_conflict(table: sleeper.Table) -> None:
    table.ingest(rows(a=1))
    with table.transaction() as transaction:
        transaction.query(keys=[["a"]])
        table.ingest(rows(b=1))
        transaction.ingest(rows(c=1))
    assert content(table) == {"a": 1, "b": 1, "c": 1}


def test_a_compaction_is_no_conflict(instance: sleeper.Instance, table: sleeper.Table) -> None:
    for count in range(3):
        table.ingest(rows(a=count))
    with table.transaction() as transaction:
        found = transaction.query(keys=[["a"]])
        before = table.version
        compact_fully(instance._ports, "counts")
        assert table.version > before
        assert len(found.to_arrow()) == 3
        transaction.delete(keys=[["a"]])
        transaction.ingest(rows(a=9))
    assert content(table) == {"a": 9}


def test_a_version_that_is_no_longer_readable_is_a_conflict(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.api.transaction._SECONDS_UNTIL_HOLD", 3_600)
    set_table_properties(instance._ports, "counts", {COLLECTION_DELAY_MINUTES.name: "0"})
    table.ingest(rows(a=1))
    transaction = table.transaction()
    transaction.query(keys=[["a"]])
    table.ingest(rows(b=1))
    table.ingest(rows(b=2))
    compact_fully(instance._ports, "counts")
    collect_table(instance._ports, "counts")
    transaction.ingest(rows(a=2))
    with pytest.raises(ConflictError, match="is no longer readable"):
        transaction.commit()


def test_a_read_of_the_whole_table_conflicts_with_any_change(table: sleeper.Table) -> None:
    transaction = table.transaction()
    transaction.query(limit=0)
    table.ingest(rows(b=1))
    transaction.ingest(rows(c=1))
    with pytest.raises(ConflictError):
        transaction.commit()


def test_exports_alone_are_committed(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state)
    with table.transaction() as transaction:
        transaction.export("out", "a", {"n": 1})
        transaction.export("out", "a", (2,))
    assert exported(state) == [(transaction.number, "out", [{"__gone": False, "k": "a", "n": 2}])]


def test_an_id_is_committed_once(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state)
    for count in range(3):
        with table.transaction(id="monday") as transaction:
            transaction.ingest(rows(a=count))
            transaction.export("out", "a", count)
        assert transaction.done_before == (count > 0)
        assert transaction.number == exported(state)[0][0]
    assert content(table) == {"a": 0}
    assert len(exported(state)) == 1


def test_of_two_runs_with_an_id_one_commits(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state)
    first, second = table.transaction(id="x"), table.transaction(id="x")
    second.export("out", "a", 2)
    first.export("out", "a", 1)
    assert first.commit() == second.commit()
    assert second.done_before
    assert [each[2][0]["n"] for each in exported(state)] == [1]


def test_an_id_of_an_ingest_is_refused(table: sleeper.Table) -> None:
    table.ingest(rows(a=1), job_id="monday")
    with pytest.raises(InvalidRequestError, match="id monday was used by transaction"):
        table.transaction(id="monday")


def test_a_lost_answer_of_a_commit_changes_nothing_twice(
    table: sleeper.Table, state: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_queue(state)
    commit, answers = StateStore.commit_together, iter([False, True])

    def lose_answer(store: StateStore, *transactions: Any) -> Any:
        outcome = commit(store, *transactions)
        if not next(answers):
            raise UnavailableError("connection lost")
        return outcome

    monkeypatch.setattr(StateStore, "commit_together", lose_answer)
    with table.transaction() as transaction:
        transaction.ingest(rows(a=1))
        transaction.export("out", "a", 1)
    assert content(table) == {"a": 1}
    assert [each[0] for each in exported(state)] == [transaction.number]


def test_transact_repeats_the_function_after_conflicts(table: sleeper.Table) -> None:
    table.ingest(rows(a=1))
    calls = 0

    def increment(transaction: sleeper.Transaction) -> int:
        nonlocal calls
        calls += 1
        (count,) = transaction.query(keys=[["a"]]).to_arrow().column("n").to_pylist()
        if calls < 3:
            table.delete(keys=[["a"]])
            table.ingest(rows(a=10 * calls))
        transaction.delete(keys=[["a"]])
        transaction.ingest(rows(a=count + 1))
        return int(count)

    assert table.transact(increment) == 20
    assert content(table) == {"a": 21}
    calls = -5
    with pytest.raises(ConflictError):
        table.transact(increment, tries=2)
    assert calls == -3


def test_an_ended_transaction_is_refused(table: sleeper.Table) -> None:
    with table.transaction() as transaction:
        transaction.ingest(rows(a=1))
        transaction.commit()
        with pytest.raises(InvalidRequestError, match="transaction on table 'counts' has ended"):
            transaction.ingest(rows(b=1))
    assert content(table) == {"a": 1}


def test_a_row_that_does_not_fit_ends_the_transaction(table: sleeper.Table) -> None:
    with table.transaction() as transaction:
        with pytest.raises(InvalidRequestError, match="'n'"):
            transaction.ingest(pa.table({"k": ["a", "b"], "n": ["1", "x"]}))
        with pytest.raises(InvalidRequestError, match="has ended"):
            transaction.commit()
    assert content(table) == {}


def test_paths_of_files_are_refused(table: sleeper.Table) -> None:
    with pytest.raises(InvalidRequestError, match="paths of files"):
        table.transaction().ingest("rows.csv")


def test_last_row_of_a_key_is_kept_in_a_table_of_latest_rows(instance: sleeper.Instance) -> None:
    table = instance.create_table("latest", SCHEMA, {"sleeper.table.rows": "latest"})
    table.ingest(rows(a=1, b=1))
    with table.transaction() as transaction:
        transaction.ingest(rows(a=2))
        transaction.ingest(rows(a=3))
        removed = pa.table({"k": ["b"], "n": pa.array([None], pa.int64()), "op": ["delete"]})
        transaction.ingest(removed, op_column="op")
    assert content(table) == {"a": 3}


def test_rows_of_a_snapshot_table_are_refused_and_the_delete_beside_them_is_not_made(
    instance: sleeper.Instance,
) -> None:
    table = instance.create_table("loaded", SCHEMA, {"sleeper.table.type": "snapshot"})
    table.ingest(rows(a=1, b=2, c=3))

    def add_one(transaction: sleeper.Transaction) -> None:
        found = transaction.query(keys=[["a"]]).to_arrow()["n"].to_pylist()
        transaction.delete(keys=[["a"]])
        transaction.ingest(rows(a=found[0] + 1))

    with pytest.raises(InvalidRequestError, match="'loaded' is a snapshot table, each load of"):
        table.transact(add_one)
    with table.transaction() as caught, pytest.raises(InvalidRequestError, match="snapshot table"):
        add_one(caught)
    assert content(table) == {"a": 1, "b": 2, "c": 3}


def test_a_transaction_deletes_rows_of_a_snapshot_table(instance: sleeper.Instance) -> None:
    table = instance.create_table("loaded", SCHEMA, {"sleeper.table.type": "snapshot"})
    table.ingest(rows(a=1, b=2))
    with table.transaction() as transaction:
        assert transaction.query(keys=[["a"]]).to_arrow().num_rows == 1
        transaction.delete(keys=[["a"]])
    assert content(table) == {"b": 2}


def test_many_deleted_keys_are_written_to_a_key_file(table: sleeper.Table) -> None:
    table.ingest(rows(**{f"key{n:05d}": n for n in range(3_000)}))
    with table.transaction() as transaction:
        transaction.delete(keys=[[f"key{n:05d}"] for n in range(2_999)])
        transaction.ingest(rows(last=1))
    assert content(table) == {"key02999": 2999, "last": 1}


def test_a_deleted_queue_stops_the_commit(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state)
    transaction = table.transaction()
    transaction.ingest(rows(a=1))
    transaction.export("out", "a", 1)
    state.commit_or_raise(DeleteExportQueue("out"))
    with pytest.raises(StateMovedOnError, match="export queue out does not exist"):
        transaction.commit()
    assert content(table) == {}


def test_a_deleted_table_stops_the_commit(instance: sleeper.Instance, table: sleeper.Table) -> None:
    transaction = table.transaction()
    transaction.ingest(rows(a=1))
    instance.delete_table("counts")
    with pytest.raises(StateMovedOnError, match="deleted"):
        transaction.commit()
    with pytest.raises(NotFoundError):
        table.transaction()


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (1, 1, "'out': field 'k' is StringType: int 1 does not fit"),
        (None, 1, "'out': field 'k' is StringType: NoneType None does not fit"),
        (("a", "b"), 1, r"'out': the key has 2 values \(expected 1: k\)"),
        ({"j": "a"}, 1, r"'out': unknown field 'j' in the key \(expected k\)"),
        ("a", "1", "'out': field 'n' is LongType: str '1' does not fit"),
        ("a", 2**63, "'out': field 'n': 9223372036854775808 does not fit LongType"),
        ("a", 1.5, r"'out': field 'n': float 1.5 does not fit \(expected LongType\)"),
        ("a", True, r"'out': field 'n': bool True does not fit \(expected LongType\)"),
        ("a", {}, r"'out': the value lacks field 'n' \(expected n\)"),
        ("a", {"m": 1}, r"'out': unknown field 'm' in the value \(expected n\)"),
        ("a", (), r"'out': the value has 0 values \(expected 1: n\)"),
    ],
)
def test_exports_that_do_not_fit_are_refused_at_once(
    table: sleeper.Table, state: StateStore, key: Any, value: Any, error: str
) -> None:
    add_queue(state)
    transaction = table.transaction()
    with pytest.raises(InvalidRequestError, match=error):
        transaction.export("out", key, value)
    transaction.export("out", "a", 1.0)
    transaction.commit()
    assert exported(state)[0][2] == [{"__gone": False, "k": "a", "n": 1}]


def test_unknown_queues_and_queues_on_rows_are_refused(
    table: sleeper.Table, state: StateStore
) -> None:
    add_queue(state, "index")
    add_queue(state, "rows", source=ExportSource.INGEST)
    transaction = table.transaction()
    with pytest.raises(
        InvalidRequestError, match=r"'indx'; did you mean index\? \(expected one of: index, rows\)"
    ):
        transaction.export("indx", "a", 1)
    with pytest.raises(InvalidRequestError, match="'rows' exports the rows of each ingest"):
        transaction.export("rows", "a", 1)


def test_values_of_all_types_are_exported(table: sleeper.Table, state: StateStore) -> None:
    values: dict[str, tuple[FieldType, Any]] = {
        "b": (PrimitiveType.BYTE_ARRAY, b"\x00\xff"),
        "f": (PrimitiveType.FLOAT, 0.5),
        "d": (PrimitiveType.DOUBLE, 1),
        "t": (PrimitiveType.TIMESTAMP, datetime(2026, 1, 2, 3, tzinfo=UTC)),
        "day": (PrimitiveType.DATE, date(2026, 1, 2)),
        "is": (PrimitiveType.BOOLEAN, True),
        "m": (DecimalType(9, 2), Decimal("12.50")),
        "l": (ListType(STRING), ["ü", ""]),
        "map": (MapType(STRING, LONG), {"x": 1}),
        "null": (PrimitiveType.INT, None),
    }
    fields = tuple(Field(name, kind, nullable=True) for name, (kind, _) in values.items())
    keys = (Field("i", PrimitiveType.INT), Field("bytes", PrimitiveType.BYTE_ARRAY))
    add_queue(state, keys=keys, values=fields)
    given = {name: value for name, (_, value) in values.items()}
    with table.transaction() as transaction:
        transaction.export("out", (7, b"\x01"), given)
        transaction.export("out", {"bytes": b"", "i": -1}, tuple(given.values()))
    key = {"__gone": False, "i": 7, "bytes": b"\x01"}
    expected = {**given, "map": [("x", 1)]}
    ((_, _, found),) = exported(state)
    assert found == [{**key, **expected}, {**key, "i": -1, "bytes": b"", **expected}]


def test_too_large_exports_are_refused(table: sleeper.Table, state: StateStore) -> None:
    add_queue(state, values=(Field("b", PrimitiveType.BYTE_ARRAY, nullable=True),))
    before = table.version
    transaction = table.transaction()
    transaction.export("out", "a", Random(1).randbytes(EXPORT_BYTES_MAX))
    with pytest.raises(InvalidRequestError, match=r"to out have .* bytes \(expected at most 4,194"):
        transaction.commit()
    assert table.version == before
