"""Malformed text files and overlong lines are refused."""

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sleeper.datafiles.sources import invalid_lines, text
from sleeper.datafiles.sources.files import Columns, RowChecker
from sleeper.datafiles.sources.json_rows import parse_lines
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, Field, FieldType, MapType, PrimitiveType, Schema
from sleeper.storage.source_options import NestedColumns, SourceOptions

P = PrimitiveType
TEXT = Schema((Field("id", P.LONG),), (), (Field("v", P.STRING, nullable=True),))


def make_schema(kind: FieldType) -> Schema:
    return Schema((Field("id", P.LONG),), (), (Field("v", kind),))


def read_rows(
    path: Path, schema: Schema, rejects: Rejects | None = None, line_bytes_max: int = 1000
) -> list[Any]:
    read = read_csv if ".csv" in path.name else read_json_lines
    checker = RowChecker(schema, str(path), rejects, line_bytes_max=line_bytes_max)
    return [tuple(row.values()) for batch in read(path, checker) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_too_long_json_line_is_refused_with_file_and_line(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LINES_BYTES", 100)
    path = tmp_path / name
    longest = '{"id": 1, "v": "%s"}' % ("x" * 982)
    content = f"{longest}\n\n{longest}\n".encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert len(read_rows(path, TEXT)) == 2
    with pytest.raises(InvalidRequestError, match=r"rows\.jsonl\S*, line 1: .*999 bytes"):
        read_rows(path, TEXT, line_bytes_max=999)
    content = b'{"id": 1}\n' * 5 + longest.encode() + b" "
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InvalidRequestError, match=r"rows\.jsonl\S*, line 6: .*1000 bytes"):
        read_rows(path, TEXT)


def test_too_long_line_is_not_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wb") as sink:
        for _ in range(64):
            sink.write(b" " * 1024**2)
    read = 0

    class CountingFile(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            nonlocal read
            result = super().read(size)
            read += len(result)
            return result

    stream = gzip.GzipFile(fileobj=CountingFile(path.read_bytes()))
    with pytest.raises(InvalidRequestError, match="line 1: "):
        list(text._line_blocks(stream, path, 1000))  # type: ignore[arg-type]
    assert stream.tell() <= text._LINES_BYTES


@pytest.mark.parametrize("rows_before", [0, 5, 6, 7, 50])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('1,"a\n2,b\n3,c\n', 1),
        ('1,a\n2,"', 2),
        ('1,a\n2,"b\n\n\n', 2),
        ('1,"a\nb"\n2,"c""\n3,d\n', 3),
        ('1,"a"b\n', 1),
        ('1,"a\n2,"b"\n', 1),
    ],
)
def test_unclosed_quote_is_refused_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, line: int, rows_before: int
) -> None:
    monkeypatch.setattr(text, "_BLOCK_BYTES", 32)
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n" + '0,"y"\n' * rows_before + content)
    place = rf"rows\.csv, line {line + 1 + rows_before}: .*quote"
    with pytest.raises(InvalidRequestError, match=place):
        read_rows(path, TEXT, line_bytes_max=20)


@pytest.mark.parametrize("header", ['id,"v\n', '"id"x,v\n'])
def test_header_with_an_unclosed_quote_is_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}1,a\n")
    with pytest.raises(InvalidRequestError, match=r"rows\.csv"):
        read_rows(path, TEXT)


@pytest.mark.parametrize("rows_before", [0, 5, 6, 7, 50])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_valid_quotes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, rows_before: int
) -> None:
    monkeypatch.setattr(text, "_BLOCK_BYTES", 32)
    path = tmp_path / "rows.csv"
    lines = ['"id","v"', *['0,"y"'] * rows_before]
    lines += ['1,""', "2,", '3,"a ""b"", c"', '4,5" pipe', '"5","é"""', '6,"', '7"']
    path.write_bytes(b"\xef\xbb\xbf" + ((end or "\n").join(lines) + end).encode())
    values = ["", None, 'a "b", c', '5" pipe', 'é"', f"{end or chr(10)}7"]
    expected = [(0, "y")] * rows_before + list(zip(range(1, 7), values, strict=True))
    assert read_rows(path, TEXT, line_bytes_max=20) == expected


def test_too_long_csv_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    longest = "x" * 9 * 1024**2
    path.write_text(f'id,v\n1,"{longest}"\n2,{longest}\n')
    assert [len(v) for _, v in read_rows(path, TEXT, line_bytes_max=10 * 1024**2)] == [
        9 * 1024**2
    ] * 2
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, line 2: .*1000 bytes"):
        read_rows(path, TEXT)


@pytest.mark.parametrize("kind", [P.INT, P.LONG], ids=str)
@pytest.mark.parametrize("cell", ["0x10", "0X1F", "-0x1", "1_0", "+1", "１", "1e2", " 1"])
def test_whole_numbers_have_decimal_digits_only(
    tmp_path: Path, kind: PrimitiveType, cell: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"id,v\n1,2\n2,{cell}\n")
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, row 2: field 'v'"):
        read_rows(path, make_schema(kind))
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"id": 1, "v": {{{json.dumps(cell)}: 1}}}}\n')
    with pytest.raises(InvalidRequestError, match=r"rows\.jsonl, row 1: field 'v'"):
        read_rows(path, make_schema(MapType(kind, P.LONG)))


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (MapType(P.STRING, P.LONG), '{"a": 1, "b": 2, "a": 1}'),
        (MapType(P.STRING, P.LONG), r'{"a": 1, "\u0061": 2}'),
        (MapType(P.INT, P.LONG), '{"1": 1, "01": 2}'),
        (MapType(DecimalType(6, 1), P.LONG), '{"1": 1, "1.0": 2}'),
        (MapType(P.BOOLEAN, P.LONG), '{"true": 1, "TRUE": 2}'),
        (MapType(P.BYTE_ARRAY, P.LONG), '{"AP8=": 1, "AP8": 2}'),
        (MapType(P.TIMESTAMP, P.LONG), '{"2020-01-01": 1, "2020-01-01T00:00:00": 2}'),
    ],
)
def test_duplicate_map_key_refuses_its_row(tmp_path: Path, kind: FieldType, cell: str) -> None:
    path = tmp_path / "rows.jsonl"
    once = cell.split(",")[0] + "}"
    path.write_text("".join(f'{{"id": 1, "v": {item}}}\n' for item in (once, cell, once, "{}")))
    sink = io.StringIO()
    assert len(read_rows(path, make_schema(kind), Rejects(sink))) == 3
    (rejection,) = map(json.loads, sink.getvalue().splitlines())
    assert rejection["row"] == 2
    assert "duplicate key" in rejection["reason"]
    path = tmp_path / "rows.csv"
    quoted_text = cell.replace('"', '""')
    path.write_text(f'id,v\n1,"{quoted_text}"\n')
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, row 1: field 'v'.*duplicate key"):
        read_rows(path, make_schema(kind))


def test_invalid_lines_cost_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({"id": i, "v": str(i)}) for i in range(2000)]
    lines[::10] = [f"not JSON {i}" for i in range(200)]
    lines[5] = '{"id": 99999999999999999999, "v": "out of range"}'
    lines[7] = '{"id": 7}'
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    parsed = 0

    def count_lines(lines: Sequence[bytes], *arguments: Any, **options: Any) -> Columns:
        nonlocal parsed
        parsed += len(lines)
        return parse_lines(lines, *arguments, **options)

    monkeypatch.setattr(invalid_lines, "parse_lines", count_lines)
    sink = io.StringIO()
    rows = read_rows(path, TEXT, Rejects(sink))
    assert [row[0] for row in rows] == [i for i in range(2000) if i % 10 and i != 5]
    assert rows[5] == (7, None)
    rejected = [json.loads(line)["row"] for line in sink.getvalue().splitlines()]
    assert rejected == sorted([6, *range(1, 2000, 10)])
    # All lines twice, and for the one line that Python accepts and Arrow does not, halves of them.
    assert parsed < 5 * len(lines)


def test_bytes_in_a_nested_value_that_are_no_text_refuse_their_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id":1,"v":{"a":1}}\n{"id":2,"v":{"a":"\xff"}}\n')
    options = SourceOptions(nested=NestedColumns.JSON)
    with pytest.raises(InvalidRequestError, match="row 2"):
        list(read_json_lines(path, RowChecker(TEXT, str(path), None, options=options)))


def test_faults_of_values_after_invalid_lines_have_their_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n\nno\n{"id": null}\n{"v": "x"}\n{"id": 6}\n')
    sink = io.StringIO()
    assert read_rows(path, TEXT, Rejects(sink)) == [(1, None), (6, None)]
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert sorted(line["row"] for line in lines) == [3, 4, 5]
