"""Fields of a table changed through the Python API, beside other work on the table."""

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.admin.properties import get_table_property, set_table_properties
from sleeper.compaction.plan import compact_table
from sleeper.compaction.service import run_compaction_message
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.ingest.run import IngestProgress
from sleeper.ingest.service import ingest_paths
from sleeper.jobs.queue import QueueName
from sleeper.processing.field_changes import RenameField
from sleeper.query.distributed.read import plan_table_read, read_table_part
from sleeper.query.request import Query, make_key_regions
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table
from sleeper.reports.check import check_table
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from tests.tables.data_table import DataTable, make_engine
from tests.tables.opened import compact
from tests.unit.query.test_extracts import DistantRoot

LONG, STRING = PrimitiveType.LONG, PrimitiveType.STRING
SCHEMA = Schema(
    (Field("key", LONG),),
    (),
    (Field("time", LONG), Field("a", PrimitiveType.INT), Field("b", STRING, nullable=True)),
)
ROWS = [{"key": k, "time": k, "a": -k, "b": f"b{k}"} for k in range(6)]


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("rows", SCHEMA, split_points=[3])
    table.ingest(pa.Table.from_pylist(ROWS))
    return table


def rows(table: sleeper.Table, **query: Any) -> list[dict[str, Any]]:
    return table.query(**query).to_arrow().to_pylist()


def change_everything(table: sleeper.Table) -> list[dict[str, Any]]:
    """Changes each field. Returns the rows that the table then has."""
    table.add_field("new", "DecimalType(5,2)", "1.5", after="key")
    table.rename_field("b", "c")
    table.rename_field("a", "b")
    table.widen_field("b", "LongType")
    table.drop_field("time")
    table.order_fields(["c", "b", "new"])
    return [{"key": r["key"], "c": r["b"], "b": r["a"], "new": Decimal("1.50")} for r in ROWS]


def test_every_reader_reads_old_files_as_the_new_schema(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    expected = change_everything(table)
    assert rows(table) == expected
    assert rows(table, keys=[[4]]) == expected[4:5]
    assert rows(table, columns=["b"], limit=2) == [{"b": 0}, {"b": -1}]
    found = instance.sql("SELECT * FROM rows WHERE b <= -4 AND c <> 'x' ORDER BY key")
    assert found.to_arrow().to_pylist() == expected[4:]
    ports = instance._ports
    read, parts = plan_table_read(ports.table("rows"), Query(), "tests", 1)
    read, parts = pickle.loads(pickle.dumps((read, parts)))
    batches = [b for part in parts for b in read_table_part(ports, read, part)]
    assert pa.Table.from_batches(batches).to_pylist() == expected
    assert not check_table(ports, "rows").findings
    assert rows(table, as_of=2) == ROWS
    old = instance.sql("SELECT key, time, a, b FROM rows WHERE a <= 0 ORDER BY key", as_of=2)
    assert old.to_arrow().to_pylist() == ROWS


def test_row_groups_of_distant_files_are_read_as_the_new_schema(tmp_path: Path) -> None:
    table = DataTable(tmp_path, SCHEMA)
    table.root = DistantRoot(tmp_path / "bucket")  # type: ignore[assignment]
    table.add_rows([tuple(row.values()) for row in ROWS])
    table.store.commit_or_raise(ChangeSchema((RenameField("a", "n"),)))
    query = Query(make_key_regions(SCHEMA, [[2]]), columns=("n", "b"))
    with run_query(query, table.query_table, make_engine(tmp_path)) as found:
        assert [b.to_pylist() for b in found] == [[{"n": -2, "b": "b2"}]]
    assert table.root.requests  # type: ignore[attr-defined]


def test_the_published_schema_and_processing_follow(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ports = instance._ports
    set_table_properties(ports, "rows", {"sleeper.table.filters": "ageOff(time,1000)"})
    table.rename_field("time", "at")
    assert '"name":"at","type":"LongType"' in get_table_property(
        ports, "rows", "sleeper.table.schema"
    )
    assert get_table_property(ports, "rows", "sleeper.table.filters") == "ageOff(at,1000)"
    with pytest.raises(InvalidRequestError, match=r"filter ageOff\(at\) needs it"):
        table.drop_field("at")


def test_an_ingest_that_began_before_a_change_commits_after_it(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    file = tmp_path / "late.parquet"
    pq.write_table(pa.Table.from_pylist([{**ROWS[0], "key": 9}]), file)
    progress = IngestProgress(rows_written=lambda _: table.rename_field("a", f"a{table.version}"))
    ingest_paths(instance._ports, "rows", [str(file)], "late", progress=progress)
    assert [row["a2"] for row in rows(table)] == [0, -1, -2, -3, -4, -5, 0]


def test_parts_that_began_before_a_change_commit_after_it(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ports, late = instance._ports, pa.Table.from_pylist([{**ROWS[0], "key": 9}])
    begun = begin_ingest(ports.table("rows"), late.schema, "late")
    begun = pickle.loads(pickle.dumps(begun))
    table.drop_field("a")
    files = write_ingest_part(ports, begun, late.to_batches(), "late", 1)
    assert files[0].file.schema_version == 1
    commit_ingest(ports, begun, "late", files)
    assert rows(table, keys=[[9]]) == [{"key": 9, "time": 0, "b": "b0"}]


def test_a_running_compaction_loses_its_files_and_its_work_is_repeated(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.ingest(pa.Table.from_pylist(ROWS))
    ports = instance._ports
    compact_table(ports, "rows", True)
    queue, messages = ports.jobs.queue(QueueName.COMPACTION), []
    while received := queue.receive():
        messages += received
    table.add_field("new", "StringType", "x")
    with pytest.raises(StateMovedOnError):
        run_compaction_message(ports, messages[0].body)
    assert {row["new"] for row in rows(table)} == {"x"}
    for message in messages:
        queue.delete(message.receipt)
    assert compact(instance) == 2
    with ports.table("rows").state.reading() as state:
        assert {file.schema_version for file in state.files.all()} == {5}
    assert {row["new"] for row in rows(table)} == {"x"}
    assert not check_table(ports, "rows").findings


def test_an_error_names_the_damaged_file_among_those_of_earlier_schemas(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.rename_field("a", "z")
    table.ingest(pa.Table.from_pylist([{"key": 0, "time": 0, "z": 1, "b": "x"}]))
    with instance._ports.table("rows").state.reading() as state:
        *_, last = state.files.all()
    path = Path(instance._ports.storage.root.url_of(last.path))
    content = bytearray(path.read_bytes())
    content[-100:-50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(DataError, match=last.path):
        rows(table, columns=["z"])


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_ingest_may_lack_an_added_column_but_no_other(
    table: sleeper.Table, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"rows.{kind}"
    row = {"key": 9, "time": 1, "a": 2, "b": "c"}
    if kind == "csv":
        file.write_text("key,time,a,b\n9,1,2,c\n")
    elif kind == "jsonl":
        file.write_text(json.dumps(row))
    else:
        pq.write_table(pa.Table.from_pylist([row]), file)
    table.add_field("new", "LongType", 7)
    table.add_field("list", "ListType(StringType)")
    table.ingest(file)
    # A missing member of JSON is null.
    assert rows(table, keys=[[9]]) == [{**row, "new": None if kind == "jsonl" else 7, "list": None}]
    if kind == "jsonl":
        return
    table.rename_field("a", "z")
    table.drop_field("b")
    with pytest.raises(InvalidRequestError) as caught:
        table.ingest(file)
    assert "missing: 'z'" in str(caught.value)
    assert "field 'z' was renamed from 'a' by transaction 6" in str(caught.value)


def test_batches_may_lack_an_added_column(table: sleeper.Table) -> None:
    table.add_field("new", "LongType", 7)
    table.ingest(pa.Table.from_pylist([{**ROWS[0], "key": 9}]))
    table.ingest(pa.Table.from_pylist([{**ROWS[0], "key": 9, "new": 8}]))
    assert sorted(row["new"] for row in rows(table, keys=[[9]])) == [7, 8]


def test_a_repeated_change_changes_nothing(table: sleeper.Table) -> None:
    first = table.add_field("new", "LongType", change_id="mine")
    assert (first.number, first.already_done) == (3, False)
    again = table.add_field("new", "LongType", change_id="mine")
    assert (again.number, again.already_done, again.schema) == (3, True, first.schema)
    with pytest.raises(ConflictError, match="mine was used by transaction 3"):
        table.drop_field("new", change_id="mine")
    assert table.order_fields(["time", "a", "b", "new"]).number is None


def test_an_unconfirmed_change_names_the_id_to_repeat_it_with(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = StateStore.commit

    def lose_response(store: StateStore, *transactions: Transaction) -> list[Outcome]:
        outcomes = commit(store, *transactions)
        if isinstance(transactions[0], ChangeSchema):
            raise UnavailableError("the response was lost")
        return outcomes

    with monkeypatch.context() as patches:
        patches.setattr(StateStore, "commit", lose_response)
        with pytest.raises(UnavailableError, match="repeating it with the id 'mine'"):
            table.add_field("new", "LongType", change_id="mine")
    assert table.add_field("new", "LongType", change_id="mine").already_done


def test_fields_that_callers_or_an_iterator_need_are_kept(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    callers = {"sleeper.table.query.callers": '{"ann":{"valueFields":["a"]}}'}
    set_table_properties(instance._ports, "rows", callers)
    for change in (lambda: table.drop_field("a"), lambda: table.rename_field("a", "z")):
        with pytest.raises(InvalidRequestError, match="visible to the caller 'ann' by its name"):
            change()
    table.add_field("hidden", "LongType")
    restricted = make_query_table(instance._ports.table("rows"), "ann")
    with run_query(Query(), restricted, instance._ports.queries.engine()) as found:
        assert found.schema.names == ["key", "a"]
    iterator = {
        "sleeper.table.iterator.class.name": "AgeOffByField",
        "sleeper.table.iterator.config": "time,1000",
    }
    set_table_properties(instance._ports, "rows", iterator)
    with pytest.raises(InvalidRequestError, match=r"'AgeOffByField'.*time"):
        table.rename_field("time", "at")


@pytest.mark.parametrize("by", ["", "time"])
def test_tables_of_latest_rows_keep_the_newest_row_of_each_key(
    instance: sleeper.Instance, by: str
) -> None:
    settings = {"sleeper.table.rows": "latest", "sleeper.table.latest.by": by}
    table = instance.create_table("latest", SCHEMA, settings)
    table.ingest(pa.Table.from_pylist(ROWS))
    table.rename_field("a", "z")
    table.add_field("new", "LongType", 7, after="key")
    newer = [{"key": k, "time": 9, "z": 100, "b": "x", "new": k} for k in (1, 2)]
    table.ingest(pa.Table.from_pylist(newer))
    table.drop_field("b")
    old = [{"key": r["key"], "new": 7, "time": r["time"], "z": r["a"]} for r in ROWS]
    changed = [{"key": r["key"], "new": r["new"], "time": 9, "z": 100} for r in newer]
    expected = [old[0], *changed, *old[3:]]
    assert rows(table) == expected
    assert instance.sql("SELECT * FROM latest ORDER BY key").to_arrow().to_pylist() == expected
    assert compact(instance, "latest") == 1
    assert rows(table) == expected
    table.widen_field("z", "LongType")
    table.ingest(pa.Table.from_pylist([{"key": 0, "time": 9, "z": 2**40}]))
    first = {"key": 0, "new": 7, "time": 9, "z": 2**40}
    assert rows(table) == [first, *expected[1:]]
    assert not check_table(instance._ports, "latest").findings
    assert rows(table, as_of=2) == ROWS
    if by:
        for change in (lambda: table.drop_field("time"), lambda: table.rename_field("time", "at")):
            with pytest.raises(InvalidRequestError, match="orders the rows with equal keys"):
                change()


def test_a_dropped_field_does_not_come_back_under_its_name(table: sleeper.Table) -> None:
    table.drop_field("b")
    table.add_field("b", "StringType")
    assert {row["b"] for row in rows(table)} == {None}


def test_types_are_parsed(table: sleeper.Table) -> None:
    table.add_field("m", "MapType(StringType, DecimalType(4,2))")
    assert str(table.arrow_schema.field("m").type).startswith("map<string, decimal128(4, 2)")
    for text in ("long", "ListType()", "DecimalType(4)", "DecimalType(99,2)", "ListType(LongType"):
        with pytest.raises(InvalidRequestError, match=r"type .*expected"):
            table.add_field("x", text)
    with pytest.raises(InvalidRequestError, match="unknown aggregation: 'avg'"):
        table.add_field("x", "LongType", aggregation="avg")
