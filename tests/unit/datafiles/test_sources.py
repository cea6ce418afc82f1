"""Sources yield rows of the table's schema and refuse others with their place."""

import datetime as dt
import gzip
import io
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.files import RowChecker, find_source_files, read_batches
from sleeper.datafiles.sources.parquet import is_scannable, open_parquet, read_parquet
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema

P = PrimitiveType
WIDE = Schema(
    (Field("id", P.STRING),),
    (Field("time", P.LONG),),
    (
        Field("count", P.INT, nullable=True),
        Field("raw", P.BYTE_ARRAY),
        Field("ok", P.BOOLEAN, nullable=True),
        Field("ratio", P.FLOAT, nullable=True),
        Field("at", P.TIMESTAMP),
        Field("day", P.DATE, nullable=True),
        Field("price", DecimalType(10, 2), nullable=True),
        Field("tags", ListType(P.STRING)),
        Field("props", MapType(P.STRING, P.LONG), nullable=True),
    ),
)
NARROW = Schema((Field("id", P.STRING),), (), (Field("n", P.INT, nullable=True),))

ROW = {
    "id": "é",
    "time": 2**40,
    "count": 3,
    "raw": b"\x00\xff",
    "ok": True,
    "ratio": 0.5,
    "at": dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
    "day": dt.date(2020, 2, 29),
    "price": Decimal("12.30"),
    "tags": ["a", ""],
    "props": [("x", 1), ("y", 2)],
}
EMPTY_ROW = ROW | {"count": None, "ok": None, "day": None, "price": None, "tags": [], "props": None}
JSON_ROW = {
    "id": "é",
    "time": 2**40,
    "count": 3,
    "raw": "AP8=",
    "ok": True,
    "ratio": 0.5,
    "at": "2020-01-01T12:00:00Z",
    "day": "2020-02-29",
    "price": 12.3,
    "tags": ["a", ""],
    "props": {"x": 1, "y": 2},
}
EMPTY_JSON = {"count": None, "ok": None, "day": None, "price": None, "tags": [], "props": None}


def list_rows(batches: Any, schema: Schema) -> list[dict[str, Any]]:
    return pa.Table.from_batches(list(batches), arrow_schema(schema)).to_pylist()


def checker(schema: Schema, path: Path, rejects: Rejects | None = None) -> RowChecker:
    return RowChecker(schema, str(path), rejects)


def test_every_type_is_read_from_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [JSON_ROW, JSON_ROW | EMPTY_JSON, dict(reversed(JSON_ROW.items()))]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    result = list_rows(read_json_lines(path, checker(WIDE, path)), WIDE)
    assert result == [ROW, EMPTY_ROW, ROW]


def test_every_type_is_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    text = (
        "time,id,count,raw,ok,ratio,at,day,price,tags,props\n"
        '1099511627776,é,3,AP8=,true,0.5,2020-01-01T12:00:00Z,2020-02-29,12.30,"[""a"",""""]",'
        '"{""x"":1,""y"":2}"\n'
        "1099511627776,é,,AP8=,,0.5,2020-01-01 12:00:00,,,[],\n"
    )
    path.write_bytes(gzip.compress(text.encode()))
    assert list_rows(read_csv(path, checker(WIDE, path)), WIDE) == [ROW, EMPTY_ROW]


def test_any_layout_of_a_type_is_read_from_parquet(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    target = arrow_schema(WIDE)
    loose = [
        ("id", pa.dictionary(pa.int8(), pa.large_string())),
        ("count", pa.int64()),
        ("ratio", pa.float64()),
        ("price", pa.decimal256(40, 4)),
        ("at", pa.timestamp("ms")),
    ]
    table = pa.Table.from_pylist([ROW, EMPTY_ROW], target)
    for name, kind in loose:
        column = table[name].cast(pa.timestamp("ms", "UTC")) if name == "at" else table[name]
        column = column.dictionary_encode() if name == "id" else column.cast(kind)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table.select(list(reversed(table.column_names))), path)
    assert list_rows(read_parquet(path, checker(WIDE, path)), WIDE) == [ROW, EMPTY_ROW]
    file = open_parquet(path, checker(WIDE, path))
    assert file is not None
    assert not is_scannable(path, file, WIDE)


def test_parquet_of_fitting_types_without_nulls_is_scannable(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": pa.array([1, None], pa.int64()), "id": ["a", "b"]}), path)
    file = open_parquet(path, checker(NARROW, path))
    assert file is not None
    assert is_scannable(path, file, NARROW)
    pq.write_table(
        pa.table({"n": pa.array([1], pa.int64()), "id": pa.array([None], "string")}), path
    )
    file = open_parquet(path, checker(NARROW, path))
    assert file is not None
    assert not is_scannable(path, file, NARROW)


def test_file_without_rows_and_columns_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    pq.write_table(pa.table({}), path)
    assert list_rows(read_parquet(path, checker(WIDE, path)), WIDE) == []


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"n": [1]}, "missing: 'id'"),
        ({"id": ["a"], "n": ["1"]}, "field 'n' is string, expected IntType"),
        (
            {"id": ["a", "b"], "n": [1, 2**31]},
            r"row group 1, row 2: field 'n' \(IntType\): 2147483648",
        ),
        ({"id": ["a", None], "n": [1, 2]}, r"row group 1, row 2: field 'id' .*: null"),
        ({"id": ["a"], "n": [1.5]}, r"row 1: field 'n' \(IntType\): 1.5"),
    ],
)
def test_refusal_of_parquet_names_file_row_group_and_field(
    tmp_path: Path, columns: dict[str, list[Any]], reason: str
) -> None:
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1)
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        list(read_parquet(path, checker(NARROW, path)))
    assert str(path) in str(caught.value)


def test_truncated_or_misnamed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a"] * 1000, "n": [1] * 1000}), path)
    original_content = path.read_bytes()
    for content in (original_content[:-20], b"id,n\na,1\n", b""):
        path.write_bytes(content)
        with pytest.raises(InvalidRequestError, match="not a readable Parquet file"):
            open_parquet(path, checker(NARROW, path))
    damaged_content = bytearray(original_content)
    damaged_content[4:60] = b"\xff" * 56
    path.write_bytes(damaged_content)
    with pytest.raises(InvalidRequestError, match="row group 0: cannot be read"):
        list(read_parquet(path, checker(NARROW, path)))


BAD_LINES = [
    '{"id":"a","n":1}',
    '{"id":"b","n":"x"}',
    '{"id":null,"n":1}',
    "nonsense",
    '{"id":"c"}',
    '{"id":"d","n":3000000000}',
    '{"id":"e","n":1,"z":2}',
    '{"id":"f","n":null}',
]


def test_rejected_json_lines_have_file_row_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(BAD_LINES))
    sink = io.StringIO()
    result = list_rows(read_json_lines(path, checker(NARROW, path, Rejects(sink))), NARROW)
    assert [r["id"] for r in result] == ["a", "c", "f"]
    rejections = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert sorted(r["row"] for r in rejections) == [2, 3, 4, 6, 7]
    assert all(r["file"] == str(path) and r["reason"] for r in rejections)


def test_bad_json_line_refuses_the_job_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(BAD_LINES))
    with pytest.raises(InvalidRequestError, match=r"a\.jsonl, row 2: "):
        list(read_json_lines(path, checker(NARROW, path)))


def test_rejected_csv_rows_have_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,n\na,1\nb,x\nc,2,3\n"d\ne",4\n')
    sink = io.StringIO()
    result = list_rows(read_csv(path, checker(NARROW, path, Rejects(sink))), NARROW)
    assert result == [{"id": "a", "n": 1}, {"id": "d\ne", "n": 4}]
    rejections = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert [r["row"] for r in rejections if "'n'" in r["reason"]] == [2]
    assert any("expected 2 columns, found 3" in r["reason"] for r in rejections)
    with pytest.raises(InvalidRequestError, match=r"a\.csv"):
        list(read_csv(path, checker(NARROW, path)))


def test_batches_of_a_program_are_checked(tmp_path: Path) -> None:
    good = pa.record_batch({"n": pa.array([1], pa.int64()), "id": ["a"]})
    assert list_rows(read_batches(iter([good]), checker(NARROW, tmp_path)), NARROW) == [
        {"id": "a", "n": 1}
    ]
    bad = pa.record_batch({"n": pa.array([2**40], pa.int64()), "id": ["a"]})
    with pytest.raises(InvalidRequestError, match="row 2: field 'n'"):
        list(read_batches(iter([good, bad]), checker(NARROW, tmp_path)))


def test_directories_are_searched_and_missing_files_refused(
    tmp_path: Path,
) -> None:
    for name in ("b.csv", "a.parquet", "notes.txt", "c.jsonl"):
        (tmp_path / name).touch()
    assert [p.name for p in find_source_files([tmp_path])] == ["a.parquet", "b.csv", "c.jsonl"]
    with pytest.raises(InvalidRequestError, match="does not exist"):
        find_source_files([tmp_path / "x.csv"])
    with pytest.raises(InvalidRequestError, match="unknown format"):
        find_source_files([tmp_path / "notes.txt"])


def test_directory_named_like_a_file_is_searched(tmp_path: Path) -> None:
    inner = tmp_path / "in" / "parts.parquet"
    inner.mkdir(parents=True)
    (inner / "part-0.parquet").touch()
    assert find_source_files([tmp_path / "in"]) == [inner / "part-0.parquet"]


def test_field_names_may_contain_dots(tmp_path: Path) -> None:
    schema = Schema(
        (Field("a.b", P.LONG),),
        (),
        (Field("a", ListType(P.LONG)), Field("a.list", P.STRING, nullable=True)),
    )
    path = tmp_path / "a.parquet"
    rows = [{"a.b": 1, "a": [1, 2], "a.list": None}]
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(schema)), path)
    file = open_parquet(path, checker(schema, path))
    assert file is not None
    assert not is_scannable(
        path,
        file,
        replace(schema, values=(Field("a", ListType(P.LONG)), Field("a.list", P.STRING))),
    )
    assert list_rows(read_parquet(path, checker(schema, path)), schema) == rows


@pytest.mark.parametrize("field", WIDE.values, ids=lambda f: f.name)
def test_column_of_nulls_needs_no_type(field: Field) -> None:
    schema = Schema((Field("id", P.STRING),), (), (replace(field, nullable=True),))
    batch = pa.record_batch({"id": ["a"], field.name: pa.nulls(1)})
    (read,) = read_batches(iter([batch]), checker(schema, Path("rows")))
    assert read.column(field.name).to_pylist() == [None]


LISTS = Schema((Field("id", P.LONG),), (), (Field('a "b"', ListType(P.LONG), nullable=True),))


@pytest.mark.parametrize(
    "cell", ["[1,2", "hello", "  ", '[1]}\n{"a":[2]', '[1],"id":7', '["x"]', "[null]"]
)
def test_invalid_json_cell_is_refused_with_its_row(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "rows.csv"
    quoted_text = cell.replace('"', '""')
    path.write_text(f'id,"a ""b"""\n1,"[1,\n2]"\n2,"{quoted_text}"\n3,\n')
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, row 2: field .*ListType"):
        list(read_csv(path, checker(LISTS, path)))
    rejects = Rejects(io.StringIO())
    read = list_rows(read_csv(path, checker(LISTS, path, rejects)), LISTS)
    assert read == [{"id": 1, 'a "b"': [1, 2]}, {"id": 3, 'a "b"': None}]
    assert rejects.count == 1


@pytest.mark.parametrize("damage", ["cut off", "cut off early", "torn"])
@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.jsonl.gz"])
def test_damaged_compressed_file_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    ids = [n * 7919 % 9973 for n in range(50_000)]
    lines = (
        [f'{{"id":"{i}"}}' for i in ids] if "json" in name else ["id,n", *(f"{i}," for i in ids)]
    )
    content = gzip.compress("\n".join(lines).encode())
    damaged_contents = {
        "cut off": content[: len(content) // 2],
        "cut off early": content[:15],
        "torn": content[:3000] + b"\xff" * 200 + content[3200:],
    }
    path.write_bytes(damaged_contents[damage])
    read = read_csv if "csv" in name else read_json_lines
    with pytest.raises(InvalidRequestError, match=f"{name}: (not a readable CSV|cannot be read)"):
        list(read(path, checker(NARROW, path)))


def test_batches_of_wide_rows_are_short(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    texts = [f"{n:0100000d}" for n in range(600)]
    pq.write_table(pa.table({"id": texts, "n": range(600)}), path, use_dictionary=False)
    batches = list(read_parquet(path, RowChecker(NARROW, str(path), None)))
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == [*range(600)]
    assert max(batch.nbytes for batch in batches) < 20 * 1024**2
