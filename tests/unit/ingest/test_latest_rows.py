"""Tables of latest rows through the Python API: every reader sees the newest row of each key."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.verification import find_damage
from sleeper.errors import InvalidRequestError
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import ingest_paths, run_ingest_message, submit_ingest
from sleeper.jobs.queue import QueueName
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.runs.engine import engine_settings
from sleeper.statestore.transactions.add_files import NewFile
from tests.tables.opened import compact
from tests.unit.bulk_import.in_process import InProcessCluster

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "valueFields": [
        {"name": "value", "type": "StringType"},
        {"name": "at", "type": "TimestampType", "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
    ],
}
LATEST = {"sleeper.table.rows": "latest", "sleeper.table.compaction.files.batch.size": "2"}


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", SCHEMA, LATEST, split_points=[50])


@pytest.fixture
def by_time(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("rows", SCHEMA, LATEST | {"sleeper.table.latest.by": "at"})


def rows(*listed: tuple[Any, ...]) -> pa.Table:
    """Returns rows of key, value, operation and time."""
    keys, values, operations, times = zip(
        *((*row, "u", None)[: len(row)] + (None, None, "u", None)[len(row) :] for row in listed),
        strict=True,
    )
    kind = pa.timestamp("us", tz="UTC")
    tags = pa.array([None if each == "delete" else ["t"] for each in operations])
    return pa.table(
        {"key": keys, "value": values, "op": operations, "at": pa.array(times, kind), "tags": tags}
    )


def upsert(table: sleeper.Table, *listed: tuple[Any, ...]) -> IngestResult:
    return table.ingest(rows(*listed), op_column="op")


def content(table: sleeper.Table, as_of: int | None = None, **query: Any) -> dict[int, str]:
    result = table.query(as_of=as_of, **query).to_arrow()
    keys = result["key"].to_pylist()
    assert keys == sorted(set(keys))
    return dict(zip(keys, result["value"].to_pylist(), strict=True))


def stored(instance: sleeper.Instance) -> list[tuple[list[str], int]]:
    """Returns the hidden columns and the rows of each referenced file."""
    with instance._ports.table("rows").state.reading() as state:
        files = list(state.files.all())
    root = Path(instance._ports.where)
    hidden = len(SCHEMA["rowKeyFields"]) + len(SCHEMA["valueFields"])
    return [(pq.read_schema(root / f.path).names[hidden:], f.rows) for f in files]


def test_queries_return_the_newest_row_of_each_key(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    first = upsert(table, (1, "a"), (2, "a"), (60, "a"), (1, "b"))
    assert first.rows == 3
    second = upsert(table, (1, "c"), (70, "c"), (2, None, "delete"))
    expected = {1: "c", 60: "a", 70: "c"}
    for jobs in (2, 0):
        assert content(table) == expected
        assert content(table, as_of=first.number) == {1: "b", 2: "a", 60: "a"}
        assert content(table, keys=[[1], [2]]) == {1: "c"}
        assert content(table, ranges=[(2, 61)]) == {60: "a"}
        assert content(table, limit=1) == {1: "c"}
        assert table.query(columns=["value"]).to_arrow()["value"].to_pylist() == ["c", "a", "c"]
        assert table.query(aggregations="").schema.names == ["key", "value", "at", "tags"]
        assert compact(instance) == jobs
    assert instance.sql("SELECT * FROM rows").to_arrow().column_names == table.arrow_schema.names
    count = "SELECT count(*) AS n FROM rows WHERE value <> 'c'"
    assert instance.sql(count).to_arrow()["n"].to_pylist() == [1]
    assert content(table) == expected
    assert (second.number or 0) == (first.number or 0) + 1


def test_compaction_keeps_numbers_and_tombstones_while_they_are_needed(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    upsert(table, (1, "a"), (2, "a"), (3, "a"))
    (ingested,) = stored(instance)
    assert ingested == ([], 3)
    upsert(table, (1, None, "d"), (2, "b"))
    upsert(table, (2, None, "d"), (4, "c"))
    with instance._ports.table("rows").state.reading() as state:
        oldest, *others = (file.path for file in state.files.all())
    compact_files(instance, others)
    assert sorted(stored(instance)) == [([], 3), (["__number", "__deleted"], 3)]
    assert content(table) == {3: "a", 4: "c"}
    compact(instance)
    assert stored(instance) == [(["__number"], 2)]
    assert content(table) == {3: "a", 4: "c"}
    assert oldest not in others


def compact_files(instance: sleeper.Instance, paths: list[str]) -> None:
    """Compacts these files of the first leaf."""
    from sleeper.compaction.plan import assign
    from sleeper.compaction.service import run_compaction_message
    from sleeper.compaction.strategy import Selection

    table = instance._ports.table("rows")
    with table.state.reading() as state:
        leaf = min(state.partitions.leaves(), key=lambda each: each.region.ranges[0].min).id
    (job,) = assign(table.ref.id, table.state, [Selection(leaf, tuple(paths))], 100_000)
    run_compaction_message(instance._ports, job.to_json())


def test_late_events_do_no_harm_if_a_field_orders_rows(
    instance: sleeper.Instance, by_time: sleeper.Table
) -> None:
    upsert(by_time, (1, "new", "u", 20), (2, "old", "u", 5), (3, "none"), (1, "older", "u", 19))
    upsert(by_time, (1, "late", "u", 10), (2, None, "d", 10), (3, "time", "u", 1))
    upsert(by_time, (2, "late", "u", 9), (3, "none"), (4, "same", "u", 7))
    upsert(by_time, (4, "later", "u", 7))
    expected = {1: "new", 3: "time", 4: "later"}
    assert content(by_time) == expected
    assert content(by_time, columns=["key", "value"]) == expected
    compact(instance)
    upsert(by_time, (2, "very late", "u", 8))
    assert content(by_time) == expected
    with pytest.raises(InvalidRequestError, match=r"row 2: field 'at': null, but the field orders"):
        upsert(by_time, (5, "x"), (2, None, "d"))


def test_deletes_and_processing_see_the_latest_rows_only(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    upsert(table, (1, "a"), (2, "a"), (3, "a"))
    table.delete(keys=[[1], [2]])
    upsert(table, (2, "b"))
    assert content(table) == {2: "b", 3: "a"}
    compact(instance)
    assert content(table) == {2: "b", 3: "a"}
    # The older row of the key is young enough, and must not reappear.
    aged = instance.create_table("aged", SCHEMA, LATEST | {"sleeper.table.filters": "ageOff(at,9)"})
    now_us = 4_102_444_800_000_000
    upsert(aged, (1, "young", "u", now_us))
    upsert(aged, (1, "old", "u", 0))
    assert content(aged) == {}


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_rows_with_unknown_operations_are_rejected(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path, suffix: str
) -> None:
    lines = [(1, "a", "c"), (2, "b", "x"), (3, "c", "r"), (4, None, "u"), (1, None, "d")]
    path = tmp_path / f"changes.{suffix}"
    if suffix == "csv":
        texts = ["key,value,op,at,tags", *(f"{k},{v or ''},{op},,[]" for k, v, op in lines)]
    else:
        texts = [
            json.dumps({"key": k, "value": v, "op": op, "at": None, "tags": []})
            for k, v, op in lines
        ]
    path.write_text("\n".join([*texts, ""]))
    with pytest.raises(InvalidRequestError, match=r"row 2: field 'op': unknown operation 'x'"):
        table.ingest([path], op_column="op")
    sink = io.StringIO()
    rejects = Rejects(sink)
    result = ingest_paths(instance._ports, "rows", [str(path)], rejects=rejects, op_column="op")
    assert (result.rows, rejects.count) == (2, 2)
    assert content(table) == {3: "c"}
    reasons = [json.loads(line)["reason"] for line in sink.getvalue().splitlines()]
    assert reasons[1] == "field 'value': null, but the field is not nullable"


def test_submitted_jobs_apply_operations(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    pq.write_table(rows((1, "a"), (2, "a"), (1, None, "delete")), tmp_path / "a.parquet")
    submit_ingest(instance._ports, "rows", [str(tmp_path / "a.parquet")], "j", "op")
    (message,) = instance._ports.jobs.queue(QueueName.INGEST).receive()
    assert run_ingest_message(instance._ports, message).rows == 2
    assert content(table) == {2: "a"}


def test_operations_need_a_table_of_latest_rows_and_a_column(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    append = instance.create_table("append", SCHEMA)
    with pytest.raises(InvalidRequestError, match=r"the table shows all rows .*rows=latest"):
        upsert(append, (1, "a"))
    with pytest.raises(InvalidRequestError, match=r"'value': this is a field of the table"):
        table.ingest(rows((1, "a")), op_column="value")
    with pytest.raises(InvalidRequestError, match=r"missing: 'oper'"):
        table.ingest(rows((1, "a")), op_column="oper")
    pq.write_table(rows((1, "a")), tmp_path / "a.parquet")
    with pytest.raises(InvalidRequestError, match=r"the table shows all rows"):
        submit_ingest(instance._ports, "append", [str(tmp_path / "a.parquet")], op_column="op")


def write_parts(instance: sleeper.Instance, table: sleeper.Table, *parts: pa.Table) -> IngestResult:
    begun = begin_ingest(
        instance._ports.table(table.name), parts[0].schema, "(parts)", op_column="op"
    )
    files: list[NewFile] = []
    for part in parts:
        files += write_ingest_part(instance._ports, begun, part.to_batches(), "(part)", 1)
    return commit_ingest(instance._ports, begun, f"job {len(files)}", files)


def test_parts_of_a_job_have_a_key_once(instance: sleeper.Instance, table: sleeper.Table) -> None:
    write_parts(instance, table, rows((1, "a"), (9, "a")), rows((2, "b"), (8, None, "d")))
    assert content(table) == {1: "a", 2: "b", 9: "a"}
    with pytest.raises(InvalidRequestError, match="several rows with key 7: none is the newest"):
        write_parts(instance, table, rows((7, "a"), (8, "b"), (7, "c")))
    with pytest.raises(InvalidRequestError, match="several rows with key 6: none is the newest"):
        write_parts(instance, table, rows((5, "a"), (6, "b")), rows((6, "c"), (7, "c")))
    assert content(table) == {1: "a", 2: "b", 9: "a"}


def test_a_field_orders_the_rows_of_parts(
    instance: sleeper.Instance, by_time: sleeper.Table
) -> None:
    first = rows((1, "a", "u", 5), (1, "b", "u", 6), (2, "a", "u", 9))
    second = rows((1, "c", "u", 4), (2, None, "d", 10))
    write_parts(instance, by_time, first, second)
    assert content(by_time) == {1: "b"}
    compact(instance)
    assert content(by_time) == {1: "b"}
    with pytest.raises(InvalidRequestError, match=r"several rows with key 3, at .*: none is"):
        write_parts(instance, by_time, rows((3, "a", "u", 5)), rows((3, "b", "u", 5)))


def test_a_bulk_import_has_a_key_once(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    upsert(table, (1, "old"), (2, "old"))
    pq.write_table(rows((1, "a"), (70, "a")).drop_columns(["op"]), path)
    ports = instance._ports
    assert bulk_import_paths(ports, "rows", [str(path)], InProcessCluster).rows == 2
    assert content(table) == {1: "a", 2: "old", 70: "a"}
    twice = rows(*((7, "a") for _ in range(9))).drop_columns(["op"])
    pq.write_table(twice, tmp_path / "b.parquet")
    with pytest.raises(InvalidRequestError, match="several rows with key 7: none is the newest"):
        bulk_import_paths(ports, "rows", [str(tmp_path / "b.parquet")], InProcessCluster)


def test_the_choice_of_rows_is_checked_and_final(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    from sleeper.admin.properties import change_table_properties

    for name, value in ("rows", "append"), ("latest.by", "value"):
        with pytest.raises(InvalidRequestError, match="cannot be set: it is chosen when a table"):
            change_table_properties(instance._ports, "rows", {f"sleeper.table.{name}": value})
    by = "sleeper.table.latest.by"
    refused = {
        "no field 'x'": LATEST | {by: "x"},
        "'key' is a key field": LATEST | {by: "key"},
        r"'tags' has type ListType\(StringType\)": LATEST | {by: "tags"},
        "the table shows all rows": {by: "value"},
        "aggregations: 1 in a table of the latest": LATEST
        | {"sleeper.table.aggregations": "max(value)"},
    }
    for reason, properties in refused.items():
        with pytest.raises(InvalidRequestError, match=reason):
            instance.create_table("other", SCHEMA, properties)
    reserved = {**SCHEMA, "valueFields": [{"name": "__number", "type": "LongType"}]}
    with pytest.raises(InvalidRequestError, match="'__number': the name is reserved"):
        instance.create_table("other", reserved, LATEST)
    with pytest.raises(InvalidRequestError, match="aggregations: 3 in a table of the latest rows"):
        change_table_properties(
            instance._ports, "rows", {"sleeper.table.aggregations": "max(value),max(at),max(tags)"}
        )
    again = instance.create_table("again", table.schema)
    assert again.schema == table.schema


def test_files_with_hidden_rows_are_whole(instance: sleeper.Instance, table: sleeper.Table) -> None:
    upsert(table, (1, "a"), (2, None, "d"))
    ports = instance._ports
    with ports.table("rows").state.reading() as state:
        files = list(state.files.all())
        settings = engine_settings(ports, SORT_MEMORY_BYTES)
        assert find_damage(state.schema, files, ports.storage.root, settings) is None


def test_the_change_feed_has_upserts_and_deletes(table: sleeper.Table) -> None:
    number = upsert(table, (1, "a"), (2, None, "d"), (3, "b"), (60, "c")).number
    changes = [(c.number, c.operation, c.rows.to_pydict()) for c in table.changes()]
    assert [operation for _, operation, _ in changes] == ["upsert", "delete"]
    assert {each for each, _, _ in changes} == {number}
    assert changes[0][2]["key"] == [1, 3, 60]
    assert changes[1][2] == {"key": [2]}
    listed = pa.Table.from_batches([c.to_arrow() for c in table.changes()]).to_pylist()
    assert listed[3]["row"] == {"key": 2, "value": None, "at": None, "tags": None}


def test_fields_change_below_the_latest_rows(
    instance: sleeper.Instance, by_time: sleeper.Table
) -> None:
    upsert(by_time, (1, "a", "u", 1), (2, "a", "u", 1), (3, "a", "u", 5))
    upsert(by_time, (2, None, "d", 3))
    compact(instance)
    by_time.rename_field("value", "text")
    by_time.add_field("value", "StringType", default="new")
    renamed = rows((1, "b", "u", 2)).append_column("text", [["c"]])
    by_time.ingest(renamed, op_column="op")
    for _ in range(2):
        result = by_time.query(columns=["key", "text", "value"]).to_arrow().to_pylist()
        assert [tuple(row.values()) for row in result] == [(1, "c", "b"), (3, "a", "new")]
        compact(instance)
    with pytest.raises(InvalidRequestError, match="field 'at' orders the rows with equal keys"):
        by_time.drop_field("at")
    with pytest.raises(InvalidRequestError, match="field 'at' orders the rows with equal keys"):
        by_time.rename_field("at", "then")
    with pytest.raises(InvalidRequestError, match="'__deleted': the name is reserved"):
        by_time.add_field("__deleted", "StringType")
