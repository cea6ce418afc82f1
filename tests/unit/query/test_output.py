"""Rows as a table, CSV, JSON lines and Parquet."""

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.json_text import duration_text, json_values
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.query.rows.output import ROW_OUTPUTS, write_client_parquet
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema

TABLE = Schema(
    (Field("id", PrimitiveType.LONG),),
    (),
    (
        Field("text", PrimitiveType.STRING, nullable=True),
        Field("bytes", PrimitiveType.BYTE_ARRAY, nullable=True),
        Field("float", PrimitiveType.DOUBLE, nullable=True),
        Field("time", PrimitiveType.TIMESTAMP, nullable=True),
        Field("date", PrimitiveType.DATE, nullable=True),
        Field("number", DecimalType(38, 4), nullable=True),
        Field("list", ListType(PrimitiveType.STRING), nullable=True),
        Field("map", MapType(PrimitiveType.STRING, PrimitiveType.LONG), nullable=True),
        Field("flag", PrimitiveType.BOOLEAN, nullable=True),
    ),
)
SCHEMA = arrow_schema(TABLE)
ROWS = [
    {
        "id": 2**63 - 1,
        "text": 'a "b"\\\n\té',
        "bytes": b"\x00\xff",
        "float": 1.5,
        "time": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "date": date(2026, 1, 2),
        "number": Decimal("12345678901234567890.1234"),
        "list": ["x", '"'],
        "map": [("k", 1), ("j", 2)],
        "flag": True,
    },
    {"id": 2, "text": "", "bytes": b"", "float": float("nan"), "list": [], "map": []},
    {"id": 3, "float": float("-inf")},
]


def write_output(name: str, rows: list[dict], schema: pa.Schema = SCHEMA) -> bytes:
    sink = io.BytesIO()
    # A slice of a longer batch: offsets of lists and maps do not begin at 0.
    batch = pa.RecordBatch.from_pylist([*ROWS, *rows], schema=schema).slice(len(ROWS))
    assert ROW_OUTPUTS[name](schema, [batch.slice(0, 1), batch.slice(1)], sink) == len(rows)
    return sink.getvalue()


def test_json_has_an_object_per_line():
    lines = [json.loads(line, parse_float=str) for line in write_output("json", ROWS).splitlines()]
    assert lines[0] == {
        "id": 2**63 - 1,
        "text": 'a "b"\\\n\té',
        "bytes": "AP8=",
        "float": "1.5",
        "time": "2026-01-02T03:04:05.000006Z",
        "date": "2026-01-02",
        "number": "12345678901234567890.1234",
        "list": ["x", '"'],
        "map": {"k": 1, "j": 2},
        "flag": True,
    }
    assert lines[1]["float"] == "NaN"
    assert (lines[1]["text"], lines[1]["bytes"], lines[1]["list"], lines[1]["map"]) == (
        "", "", [], {},
    )  # fmt: skip
    assert lines[2] == dict.fromkeys(SCHEMA.names, None) | {"id": 3, "float": "-Infinity"}


def test_csv_distinguishes_null_from_empty_and_quotes_strings():
    text = write_output("csv", ROWS).decode()
    assert text.startswith('"id","text","bytes","float","time","date","number","list","map","flag"')
    assert '"a ""b""\\\n\té","AP8=",1.5,"2026-01-02T03:04:05.000006Z","2026-01-02",' in text
    assert '"12345678901234567890.1234","[""x"",""\\""""]","{""k"":1,""j"":2}",true' in text
    assert '\n2,"","",nan,,,,"[]","{}",\n' in text
    assert text.endswith("\n3,,,-inf,,,,,,\n")


def test_ingest_reads_csv_and_json_output(tmp_path: Path):
    rows = [{**row, "float": 1.5, "number": Decimal("0.5000")} for row in ROWS]
    expected = pa.RecordBatch.from_pylist(rows, schema=SCHEMA).to_pylist()
    for name, read in (("csv", read_csv), ("json", read_json_lines)):
        path = tmp_path / f"rows.{name}"
        path.write_bytes(write_output(name, rows))
        batches = read(path, RowChecker(TABLE, str(path), None))
        assert [row for batch in batches for row in batch.to_pylist()] == expected


def test_parquet_has_the_schema_and_the_rows():
    table = pq.read_table(io.BytesIO(write_output("parquet", ROWS)))
    assert table.schema.equals(SCHEMA)
    assert table.num_rows == 3


def test_table_has_columns_under_their_names():
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    rows = [{"id": 7, "name": "é日"}, {"id": 123, "name": None}, {"id": 1, "name": "x" * 200}]
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    assert ROW_OUTPUTS["table"](schema, [batch], sink) == 3
    assert sink.getvalue().decode().splitlines() == [
        " id  name",
        "───  " + "─" * 60,
        "  7  é日",
        "123",
        "  1  " + "x" * 59 + "…",
    ]


def test_output_without_rows_has_column_names():
    for name, expected in (("json", b""), ("csv", b'"id"\n'), ("table", "id\n──\n".encode())):
        sink = io.BytesIO()
        assert ROW_OUTPUTS[name](pa.schema([("id", pa.int64())]), [], sink) == 0
        assert sink.getvalue() == expected


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1))
def test_random_strings_are_valid_json(values: list[str | None]):
    rows = json_values(pa.array(values, pa.string())).to_pylist()
    assert [json.loads(text) for text in rows] == values


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1))
def test_finite_floats_round_trip_as_json(values: list[float | None]):
    rows = json_values(pa.array(values, pa.float64())).to_pylist()
    assert [json.loads(text) for text in rows] == values


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
    ],
    ids=str,
)
def test_lists_of_all_kinds_are_json(kind: pa.DataType) -> None:
    rows = [None, [1, 2], None, [3, 4]]
    expected = ["null", "[1,2]", "null", "[3,4]"]
    column = pa.array(rows, kind)
    assert json_values(column).to_pylist() == expected
    assert json_values(column.slice(1, 2)).to_pylist() == expected[1:3]
    assert json_values(column.slice(0, 0)).to_pylist() == []


def test_list_views_may_share_values_and_have_any_order() -> None:
    starts, sizes = pa.array([2, 0, 0], pa.int32()), pa.array([1, 3, 0], pa.int32())
    column = pa.ListViewArray.from_arrays(starts, sizes, pa.array(["a", "b", "c"]))
    assert json_values(column).to_pylist() == ['["c"]', '["a","b","c"]', "[]"]


_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@given(st.sampled_from([*_SECONDS]), st.lists(st.none() | st.integers(-(2**63) + 1, 2**63 - 1)))
def test_durations_are_exact_text_of_iso_8601(unit: str, values: list[int | None]) -> None:
    column = pa.array([0, *values], pa.int64()).cast(pa.duration(unit)).slice(1)
    texts = duration_text(column).to_pylist()
    assert [text and parse_duration(text) * _SECONDS[unit] for text in texts] == values


def parse_duration(text: str) -> Decimal:
    found = re.fullmatch(r"P(?:(.+)D)?(?:T(?:(.+)H)?(?:(.+?)M)?(?:(.+)S)?)?", text)
    assert found
    assert any(found.groups())
    days, hours, minutes, seconds = (Decimal(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def test_intervals_are_text_and_have_no_type_in_parquet() -> None:
    values = [(1, 2, 3), None, (-14, 0, -1_500_000_000), (0, 0, 0), (0, 0, 3_600_000_000_000)]
    intervals = [value and pa.MonthDayNano(value) for value in values]
    column = pa.array(intervals, pa.month_day_nano_interval())
    texts = ["P1M2DT0.000000003S", None, "P-14MT-1.5S", "PT0S", "PT1H"]
    assert duration_text(column).to_pylist() == texts
    assert duration_text(column.slice(2)).to_pylist() == texts[2:]
    assert duration_text(column.slice(0, 0)).to_pylist() == []
    rows, schema = [{"age": each} for each in intervals], pa.schema([("age", column.type)])
    assert write_output("csv", rows, schema).splitlines()[1] == b'"P1M2DT0.000000003S"'
    assert json.loads(write_output("json", rows, schema).splitlines()[0]) == {
        "age": "P1M2DT0.000000003S"
    }
    with pytest.raises(InvalidRequestError, match="column 'age' is an interval"):
        write_output("parquet", rows, schema)


def test_elements_of_lists_have_the_name_of_their_field_for_clients(tmp_path):
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("props", pa.map_(pa.string(), pa.int64())),
        ]
    )
    rows = [{"k": 1, "tags": ["a", "b"], "props": [("x", 1)]}, {"k": 2, "tags": [], "props": []}]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    with (tmp_path / "rows.parquet").open("wb") as sink:
        assert write_client_parquet(schema, [batch], sink) == 2
    file = pq.ParquetFile(tmp_path / "rows.parquet")
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    assert paths == ["k", "tags.list.tags", "props.key_value.key", "props.key_value.value"]
    assert file.read().to_pylist() == rows
