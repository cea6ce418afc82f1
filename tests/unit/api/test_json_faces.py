"""Values of `JSONType` come back as they were written, by every face of a table.

A face is a way for rows into a table, or out of it. Each test of a face is in a list here, so that
a new face is one line.
"""

import csv
import io
import json
import math
from collections.abc import Callable
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.athena.connector import athena_schema
from sleeper.datafiles.json_python import parse_json
from sleeper.duckdb import register_tables
from sleeper.errors import InvalidRequestError
from sleeper.polars import scan_sleeper
from sleeper.query.rows.output import ROW_OUTPUTS
from sleeper.reports.check import check_table
from sleeper.schema.model import ListType, PrimitiveType
from sleeper.spark.options import cast_batches, to_arrow, to_spark
from tests.tables.opened import compact
from tests.unit.serve.client import post, request

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "doc", "type": "JSONType", "nullable": True},
        {"name": "text", "type": "StringType", "nullable": True},
    ],
}
TEXTS: list[str | None] = [
    None,
    "null",
    "1.10",
    str(2**70),
    "-0",
    "1e400",
    '"\\u0041\\n{\\"a\\":1}"',
    '"é\u2028 😀 \\ud83d\\ude00 \x7f"',
    '{"about":{"~id":"x","price":1.10,"none":null,"list":[{},[],""]},"b":[1,2.50]}',
    "[]",
    "{ }",
    '{"a" : [ 1 , 2 ]}',
    "true",
    '"null"',
    '""',
]
Texts = list[str | None]
Write = Callable[[sleeper.Table, Path], None]
Read = Callable[[sleeper.Instance, sleeper.Table, Path], Texts]


def lines() -> str:
    rows = (f'"doc":{text},' if text is not None else "" for text in TEXTS)
    return "".join(f'{{"id":{number},{doc}"text":"t"}}\n' for number, doc in enumerate(rows))


def arrow(kind: pa.DataType | None = None) -> pa.Table:
    docs = pa.array(TEXTS, pa.string())
    docs = docs if kind is None else docs.cast(kind)
    return pa.table({"id": range(len(TEXTS)), "doc": docs, "text": ["t"] * len(TEXTS)})


def write_lines(table: sleeper.Table, folder: Path) -> None:
    (folder / "rows.jsonl").write_text(lines())
    table.ingest(folder / "rows.jsonl")


def write_csv(table: sleeper.Table, folder: Path) -> None:
    cells = ("" if text is None else '"' + text.replace('"', '""') + '"' for text in TEXTS)
    rows = (f"{number},{cell},t\n" for number, cell in enumerate(cells))
    (folder / "rows.csv").write_text("id,doc,text\n" + "".join(rows))
    table.ingest(folder / "rows.csv")


def write_parquet(table: sleeper.Table, folder: Path, kind: pa.DataType | None = None) -> None:
    pq.write_table(arrow(kind), folder / "rows.parquet")
    table.ingest(folder / "rows.parquet")


WRITERS: dict[str, Write] = {
    "json lines": write_lines,
    "csv": write_csv,
    "parquet text": write_parquet,
    "parquet json": lambda table, folder: write_parquet(table, folder, pa.json_()),
    "arrow text": lambda table, _: table.ingest(arrow()) and None,
    "arrow json": lambda table, _: table.ingest(arrow(pa.json_(pa.string_view()))) and None,
    "arrow large text": lambda table, _: table.ingest(arrow(pa.large_string())) and None,
    "row by row": lambda table, _: [table.ingest(arrow().slice(n, 1)) for n in range(15)] and None,
}


def written_texts(rows: list[str]) -> Texts:
    """Returns the text of the member of each line, which is before another one."""
    result: Texts = []
    for row in rows:
        _, found, rest = row.partition('"doc":')
        result.append(rest.rpartition(',"text"')[0] if found else None)
    return result


def read_output(name: str) -> Read:
    def read(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
        sink, rows = io.BytesIO(), table.query()
        ROW_OUTPUTS[name](rows.schema, rows, sink)
        content = sink.getvalue()
        match name:
            case "json":
                return written_texts(content.decode().split("\n")[:-1])
            case "csv":
                cells = csv.reader(io.StringIO(content.decode()))
                return [row[1] or None for row in cells][1:]
            case "arrow":
                return pa.ipc.open_stream(content).read_all().column("doc").to_pylist()
            case "parquet":
                read = pq.read_table(io.BytesIO(content))
                assert read.schema.field("doc").type == pa.json_()
                return read.column("doc").to_pylist()
        raise AssertionError(f"no reader of {name}")

    return read


def read_arrow(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
    texts: Texts = table.query().to_arrow().column("doc").to_pylist()
    return texts


def read_keys(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
    rows = [table.query(keys=[[n]], columns=["doc"]).to_arrow() for n in range(len(TEXTS))]
    return [each.column("doc")[0].as_py() for each in rows]


def read_sql(instance: sleeper.Instance, table: sleeper.Table, _: Path) -> Texts:
    rows = instance.sql(f"SELECT * FROM {table.name} ORDER BY id").to_arrow()
    assert rows.schema.field("doc").type == pa.json_()
    return rows.column("doc").to_pylist()


def read_compacted(instance: sleeper.Instance, table: sleeper.Table, folder: Path) -> Texts:
    table.ingest(pa.table({"id": [99], "doc": ["{}"]}))
    assert compact(instance, table.name) == 1
    assert not check_table(instance._ports, table.name).findings
    for file in folder.rglob("partition_*/*.parquet"):
        assert pq.read_schema(file).field("doc").type == pa.json_()
    return read_arrow(instance, table, folder)[:-1]


def read_duckdb(instance: sleeper.Instance, table: sleeper.Table, _: Path) -> Texts:
    with duckdb.connect() as connection:
        register_tables(connection, instance)
        rows = connection.sql(f"SELECT typeof(doc), doc FROM {table.name} ORDER BY id").fetchall()
        second = connection.sql("SELECT doc ->> '$.b[1]' FROM docs WHERE id = 8").fetchall()
        chosen = connection.sql("SELECT id FROM docs WHERE doc = 'true'").fetchall()
    assert (second, chosen) == ([("2.5",)], [(12,)])
    assert {kind for kind, _ in rows} == {"JSON"}
    return [text for _, text in rows]


def read_http(instance: sleeper.Instance, table: sleeper.Table, _: Path) -> Texts:
    answer = post(instance._ports, f"/tables/{table.name}/query", {})
    assert answer.status_code == HTTPStatus.OK
    return written_texts(answer.content.decode().split("\n")[: len(TEXTS)])


def read_changes(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
    rows = table.changes().to_arrow()
    texts: Texts = pc.struct_field(rows.column("row"), "doc").to_pylist()
    return texts[-len(TEXTS) :]


def read_spark(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
    kinds = to_arrow(to_spark(table.schema, None))
    assert kinds.field("doc").type == pa.string()
    rows = pa.Table.from_batches(cast_batches(table.query(), kinds))
    return rows.column("doc").to_pylist()


def read_adjunct(_: sleeper.Instance, table: sleeper.Table, __: Path) -> Texts:
    other = StoredField("text", PrimitiveType.STRING)
    rows = table.query(columns=["doc", "text"]).to_arrow().combine_chunks().to_batches()[0]
    texts = read_values(rows, other)
    # Values with lists are decoded one by one.
    lists = pa.array([["a"]] * rows.num_rows)
    rows = rows.set_column(1, "tags", lists)
    assert read_values(rows, StoredField("tags", ListType(PrimitiveType.STRING))) == texts
    return texts


def read_values(rows: pa.RecordBatch, other: StoredField) -> Texts:
    fields = (StoredField("doc", PrimitiveType.JSON), other)
    codec = ValueCodec(Layout((StoredField("id", PrimitiveType.LONG),), fields))
    encoded = codec.encode_rows(rows.columns, rows.num_rows)
    values = [codec.decode(each)["doc"] for each in encoded]
    assert values == [None if text is None else parse_json(text) for text in TEXTS]
    columns = ValueColumns("s", Layout((StoredField("id", PrimitiveType.LONG),), fields))
    decoded = columns.decode(pa.array(encoded, pa.large_binary()))
    assert decoded.schema.field("doc").type == pa.json_()
    return decoded.column("doc").to_pylist()


READERS: dict[str, Read] = {
    "to_arrow": read_arrow,
    "compaction": read_compacted,
    "keys": read_keys,
    "sql": read_sql,
    "polars": lambda _, table, __: table.query().to_polars()["doc"].to_list(),
    "polars scan": lambda instance, table, _: (
        scan_sleeper(instance, table.name).sort("id").collect()["doc"].to_list()
    ),
    "duckdb": read_duckdb,
    "http": read_http,
    "changes": read_changes,
    "spark": read_spark,
    "adjunct": read_adjunct,
    "pandas": lambda _, table, __: [*table.query().to_pandas()["doc"]],
    **{f"output {name}": read_output(name) for name in ROW_OUTPUTS if name != "table"},
}


@pytest.fixture
def docs(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("docs", SCHEMA)


@pytest.mark.parametrize("writer", [*WRITERS])
def test_a_way_in_keeps_the_text(writer: str, docs: sleeper.Table, tmp_path: Path) -> None:
    WRITERS[writer](docs, tmp_path)
    rows = docs.query().to_arrow()
    assert rows.schema.field("doc").type == pa.json_()
    assert rows.column("doc").to_pylist() == TEXTS


@pytest.mark.parametrize("reader", [*READERS])
def test_a_way_out_keeps_the_text(
    reader: str, instance: sleeper.Instance, docs: sleeper.Table, tmp_path: Path
) -> None:
    write_lines(docs, tmp_path)
    assert READERS[reader](instance, docs, tmp_path) == TEXTS


def test_python_has_values(docs: sleeper.Table, tmp_path: Path) -> None:
    write_lines(docs, tmp_path)
    rows = docs.query().to_pylist()
    for row, text in zip(rows, TEXTS, strict=True):
        assert ("doc" in row) == (text is not None)
        if text is not None:
            assert row["doc"] == (Decimal(text) if text == "1e400" else json.loads(text))
    docs.ingest([{**row, "id": row["id"] + 100} for row in rows])
    again = docs.query(ranges=[(100, 200)]).to_pylist()
    assert [{**row, "id": row["id"] - 100} for row in again] == rows


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1: 2}, "row 2: field 'doc': the name 1 is no text"),
        ([float("nan")], "row 2: field 'doc': nan is no number of JSON"),
        (b"x", "row 2: field 'doc': bytes is no type of JSON"),
        ("\ud800", "row 2: field 'doc'"),
    ],
)
def test_python_values_that_json_lacks_are_refused(
    value: Any, reason: str, docs: sleeper.Table
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        docs.ingest([{"id": 1, "doc": {}}, {"id": 2, "doc": value}])


def test_invalid_values_name_row_and_field(docs: sleeper.Table) -> None:
    rows = pa.table({"id": [1, 2], "doc": ["1", '{"a":1,"a":2}']})
    with pytest.raises(
        InvalidRequestError, match=r"row 2: field 'doc' .JSONType.: .*the member 'a' twice"
    ):
        docs.ingest(rows)


def test_limits_are_properties(instance: sleeper.Instance, docs: sleeper.Table) -> None:
    instance.set_properties({"sleeper.json.depth.max": "2", "sleeper.json.bytes.max": "10"})
    docs.ingest(pa.table({"id": [1], "doc": ["[[1]]     "]}))
    for text, reason in (("[[[]]]", "more than 2 levels"), ('"123456789"', "11 bytes")):
        with pytest.raises(InvalidRequestError, match=reason):
            docs.ingest(pa.table({"id": [1], "doc": [text]}))


def test_lines_have_no_line_ends_of_values(docs: sleeper.Table) -> None:
    docs.ingest(pa.table({"id": [1], "doc": ['{\r\n"a": 1}']}))
    rows, sink = docs.query(), io.BytesIO()
    ROW_OUTPUTS["json"](rows.schema, rows, sink)
    assert sink.getvalue() == b'{"id":1,"doc":{  "a": 1},"text":null}\n'


def test_lines_have_no_characters_that_messages_refuse(docs: sleeper.Table) -> None:
    docs.ingest(pa.table({"id": [1], "doc": ['"\ufffe\uffff"']}))
    rows, sink = docs.query(), io.BytesIO()
    ROW_OUTPUTS["json"](rows.schema, rows, sink)
    assert sink.getvalue() == b'{"id":1,"doc":"\\ufffe\\uffff","text":null}\n'


def test_numbers_beyond_those_of_python_are_read(docs: sleeper.Table) -> None:
    docs.ingest(pa.table({"id": [1], "doc": ["[-1e1000000000000000000, 1e400]"]}))
    (row,) = docs.query().to_pylist()
    assert row["doc"] == [-math.inf, Decimal("1e400")]


def test_numbers_of_other_libraries_are_those_of_python(docs: sleeper.Table) -> None:
    class Level(int):
        def __str__(self) -> str:
            return "high"

    docs.ingest([{"id": 1, "doc": [np.float64(0.5), Level(3)]}])
    assert docs.query().to_arrow()["doc"].to_pylist() == ["[0.5,3]"]


def test_columns_of_one_name_may_be_absent(instance: sleeper.Instance, docs: sleeper.Table) -> None:
    docs.ingest(pa.table({"id": [1], "doc": pa.nulls(1, pa.string())}))
    statement = "SELECT a.id, a.doc, b.doc FROM docs a JOIN docs b ON a.id = b.id"
    assert instance.sql(statement).to_pylist() == [{"id": 1}]


def test_first_members_may_be_absent(docs: sleeper.Table) -> None:
    docs.ingest(pa.table({"id": [1, 2], "doc": ["1", None]}))
    for columns, expected in (
        (["doc", "id"], ['{"doc":1,"id":1}', '{"id":2}']),
        (["doc"], ['{"doc":1}', "{}"]),
    ):
        rows, sink = docs.query(columns=columns), io.BytesIO()
        ROW_OUTPUTS["json"](rows.schema, rows, sink)
        assert sink.getvalue().decode().splitlines() == expected


def test_statements_that_mix_json_and_text_return_text(
    instance: sleeper.Instance, docs: sleeper.Table
) -> None:
    docs.ingest(pa.table({"id": [1, 2], "doc": ["1", "2"], "text": ["x", "y"]}))
    for statement, is_json in (
        ("SELECT doc FROM docs UNION ALL SELECT text FROM docs", False),
        ("SELECT lag(doc, 1, 'x') OVER (ORDER BY id) FROM docs", False),
        ("SELECT upper(doc) FROM docs", False),
        ("SELECT first_value(doc) FROM docs", True),
        ("SELECT doc, count(*) FROM docs GROUP BY doc", True),
        ("SELECT doc FROM docs WHERE id > 5", True),
        ("SELECT a.doc FROM docs a JOIN docs b ON a.id = b.id", True),
    ):
        kind = instance.sql(statement).to_arrow().schema.types[0]
        assert (kind == pa.json_()) == is_json, statement


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"rowKeyFields": [{"name": "a", "type": "JSONType"}]}, "key field 'a' has type JSONType"),
        (
            {**SCHEMA, "sortKeyFields": [{"name": "a", "type": "JSONType"}]},
            "key field 'a' has type JSONType",
        ),
        ({**SCHEMA, "latest": {"by": "doc"}}, "JSONType, which cannot order rows"),
        (
            {
                **SCHEMA,
                "valueFields": [{"name": "a", "type": {"ListType": {"elementType": "JSONType"}}}],
            },
            "JSONType has lists and objects",
        ),
    ],
)
def test_fields_that_cannot_be_json_are_refused(
    schema: dict[str, Any], reason: str, instance: sleeper.Instance
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        instance.create_table("refused", schema)


def test_rows_come_in_by_http(instance: sleeper.Instance, docs: sleeper.Table) -> None:
    answer = request(
        instance._ports,
        "POST",
        "/tables/docs/rows",
        content=lines().encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == HTTPStatus.OK, answer.text
    assert docs.query().to_arrow().column("doc").to_pylist() == TEXTS


def test_athena_has_text(docs: sleeper.Table) -> None:
    assert athena_schema(docs.schema).field("doc").type == pa.string()


def test_tables_like_rows_have_json(instance: sleeper.Instance, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"id":1,"doc":{"a":1}}\n{"id":2,"doc":[{}]}\n{"id":3,"doc":"x"}\n'
    )
    nested = pa.table({"id": [4], "doc": [{"b": [[1]]}], "more": pa.array(["{}"]).cast(pa.json_())})
    pq.write_table(nested, tmp_path / "b.parquet")
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.parquet")]
    table = instance.create_table("like", like=paths, key="id")
    assert [field.type for field in table.schema.values] == [PrimitiveType.JSON] * 2
    table.ingest(paths)
    texts = ['{"a":1}', "[{}]", '"x"', '{"b":[[1]]}']
    assert table.query().to_arrow().column("doc").to_pylist() == texts
    copy = instance.create_table("copy", like=table.query().to_arrow(), key="id")
    assert copy.schema.has_fields_of(table.schema)


def test_deletes_of_latest_rows_need_no_json(instance: sleeper.Instance) -> None:
    schema = {**SCHEMA, "valueFields": [{"name": "doc", "type": "JSONType"}]}
    table = instance.create_table("latest", schema, {"sleeper.table.rows": "latest"})
    table.ingest([{"id": 1, "doc": {"a": 1}}, {"id": 2, "doc": None}])
    table.ingest([{"id": 1, "op": "delete"}, {"id": 3, "doc": [], "op": "insert"}], op_column="op")
    assert table.query().to_pylist() == [{"id": 2, "doc": None}, {"id": 3, "doc": []}]
    compact(instance, "latest")
    assert table.query().to_arrow().column("doc").to_pylist() == ["null", "[]"]
