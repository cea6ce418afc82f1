"""Lines of JSON and cells of CSV: invalid rows, and values that Arrow misreads."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sleeper.datafiles.sources.files import RowChecker, read_batches
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, FieldType, ListType, MapType, PrimitiveType, Schema

P = PrimitiveType
MAP = MapType(P.STRING, P.FLOAT)


def make_schema(kind: FieldType) -> Schema:
    return Schema((Field("id", P.LONG),), (), (Field("x", kind, nullable=True),))


def read_json(folder: Path, kind: FieldType, *cells: str) -> list[Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(f'{{"id": 1, "x": {cell}}}\n' for cell in cells))
    batches = read_json_lines(path, RowChecker(make_schema(kind), str(path), None))
    return [x for batch in batches for x in batch.column("x").to_pylist()]


def read_cells(folder: Path, kind: FieldType, cell: str) -> list[Any]:
    path = folder / "rows.csv"
    path.write_text(f"id,x\n1,{cell}\n")
    batches = read_csv(path, RowChecker(make_schema(kind), str(path), None))
    return [x for batch in batches for x in batch.column("x").to_pylist()]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (P.FLOAT, "1e39"),
        (P.DOUBLE, "1e400"),
        (ListType(P.FLOAT), "[1.0, -1e39]"),
        (ListType(P.DOUBLE), "[1e400]"),
        (MAP, '{"a": 1e39}'),
        (MapType(P.STRING, P.DOUBLE), '{"a": 1e400}'),
        (MapType(P.FLOAT, P.LONG), '{"1e39": 1}'),
    ],
)
def test_too_large_float_is_refused(tmp_path: Path, kind: FieldType, cell: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"rows\.jsonl, row 2: .*(too large|too big|number)"
    ):
        read_json(tmp_path, kind, "null", cell)
    quoted_text = cell.replace('"', '""')
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, row 1: "):
        read_cells(tmp_path, kind, f'"{quoted_text}"')


def test_narrowed_floats_in_lists_are_not_infinite() -> None:
    kind = ListType(P.FLOAT)
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "x": [[1.0, math.inf], [1e39]]})
    with pytest.raises(InvalidRequestError, match=r"row 2: field 'x'.*too large"):
        list(read_batches(iter([batch]), RowChecker(make_schema(kind), "rows", None)))
    (good,) = read_batches(iter([batch.slice(0, 1)]), RowChecker(make_schema(kind), "rows", None))
    assert good.column("x").to_pylist() == [[1.0, math.inf]]


def test_special_floats_may_be_quoted_or_unquoted(tmp_path: Path) -> None:
    result = read_json(tmp_path, P.DOUBLE, '"NaN"', "NaN", '"-Infinity"', "Infinity", "-0.0", "3")
    assert repr(result) == "[nan, nan, -inf, inf, -0.0, 3.0]"
    lists = read_json(tmp_path, ListType(P.DOUBLE), '["NaN", 1]', "[Infinity]", "[]")
    assert repr(lists) == "[[nan, 1.0], [inf], []]"
    maps = read_json(tmp_path, MAP, '{"a": "NaN", "b": -Infinity}', '{"NaN": 1}')
    assert repr(maps) == "[[('a', nan), ('b', -inf)], [('NaN', 1.0)]]"


@pytest.mark.parametrize("cell", ['"nan"', '"1.5"', '["NaN"]', '{"x": "NaN"}', '"NaN "'])
def test_other_text_is_not_a_float(tmp_path: Path, cell: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"row 1: field 'x'"):
        read_json(tmp_path, P.DOUBLE, cell)


def test_text_nan_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    schema = Schema(
        (Field("id", P.STRING),),
        (),
        (Field("x", P.DOUBLE), Field("notes", ListType(P.STRING))),
    )
    path.write_text(r'{"id": "{\"x\":\"NaN\"}", "x" : "NaN", "notes": ["NaN", "x\":\"NaN\""]}')
    (batch,) = read_json_lines(path, RowChecker(schema, str(path), None))
    assert repr(batch.to_pylist()) == repr(
        [{"id": '{"x":"NaN"}', "x": math.nan, "notes": ["NaN", 'x":"NaN"']}]
    )


@pytest.mark.parametrize("kind", [P.LONG, MAP], ids=str)
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 1, "id": 2, "x": null}', "duplicate member|specified twice"),
        ('{"id": 1, "x": null, "y": 1}', "field 'y' is not in the schema"),
        ("[1]", "not a JSON object, which each line must be"),
        ("{", "not a JSON object, which each line must be: "),
        ('{"id": 1} {"id": 2}', "row"),
        ('{"id": ' + "[" * 100_000 + "}", "row"),
    ],
)
def test_invalid_line_is_rejected(tmp_path: Path, kind: FieldType, line: str, reason: str) -> None:
    path, aside = tmp_path / "rows.jsonl", tmp_path / "rejected.jsonl"
    path.write_text(f'{{"id": 1}}\n{line}\n{{"id": 3, "x": null}}\n')
    with aside.open("w") as sink:
        rejects = Rejects(sink)
        batches = list(read_json_lines(path, RowChecker(make_schema(kind), str(path), rejects)))
    assert [n for batch in batches for n in batch.column("id").to_pylist()] == [1, 3]
    assert rejects.count == 1
    assert any(text in aside.read_text() for text in reason.split("|"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (P.DATE, "12026-03-01"),
        (P.DATE, "-0044-03-15"),
        (P.DATE, "0000-12-31"),
        (P.TIMESTAMP, "12026-03-01T06:00:12.000005Z"),
        (P.TIMESTAMP, "-44-03-15T12:00:00"),
        (P.TIMESTAMP, "2026-03-01"),
    ],
)
def test_every_year_of_a_type_is_read(tmp_path: Path, kind: FieldType, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"id,x\n1,{text}\n")
    (batch,) = read_csv(path, RowChecker(make_schema(kind), str(path), None))
    column = batch.column("x")
    number = column.cast(pa.int32() if kind is P.DATE else pa.int64())[0].as_py()
    micros = number * (86_400_000_000 if kind is P.DATE else 1)
    assert np.datetime64(micros, "us") == np.datetime64(text.removesuffix("Z"), "us")


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (P.DATE, "99999999-01-01", "not in range"),
        (P.DATE, "12026-02-30", "Day out of range"),
        (P.DATE, "-infinity", "expected a date such as 2026-03-01"),
        (P.TIMESTAMP, "-infinity", "expected a time such as 2026-03-01T06:00:00"),
        (P.TIMESTAMP, "300000-01-01T00:00:00Z", "out of the bounds"),
        (P.TIMESTAMP, "12026-03-01T06:00:00+01:00", "Z is its zone"),
    ],
)
def test_invalid_time_of_a_far_year_is_refused(
    tmp_path: Path, kind: FieldType, text: str, reason: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"id,x\n1,{text}\n")
    with pytest.raises(InvalidRequestError, match=rf"rows\.csv, row 1: field 'x' .*{reason}"):
        list(read_csv(path, RowChecker(make_schema(kind), str(path), None)))
