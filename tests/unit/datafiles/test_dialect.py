"""CSV files of any delimiter and encoding, with or without a header, are read as they are."""

import csv
import gzip
import io
import logging
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.sources import encodings
from sleeper.datafiles.sources.dialect import find_dialect
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions, make_source_options

P = PrimitiveType
CITIES = Schema(
    (Field("city", P.STRING),),
    (Field("day", P.INT),),
    (Field("celsius", P.DOUBLE, nullable=True), Field("note", P.STRING, nullable=True)),
)
ROWS = [("Oslo", 1, -3.5, "a;b"), ("São Paulo", 2, None, 'été "x"')]
LINES = 'city;day;celsius;note\nOslo;1;-3.5;"a;b"\nSão Paulo;2;;"été ""x"""\n'


def read_rows(
    path: Path,
    options: SourceOptions = DEFAULT_OPTIONS,
    schema: Schema = CITIES,
    rejects: Rejects | None = None,
) -> list[Any]:
    read = read_json_lines if ".json" in path.name else read_csv
    checker = RowChecker(schema, str(path), rejects, options=options)
    return [tuple(row.values()) for batch in read(path, checker) for row in batch.to_pylist()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiter_and_encoding_are_found(
    tmp_path: Path, encoding: str, delimiter: str, end: str
) -> None:
    path = tmp_path / "rows.csv"
    text = LINES.replace("a;b", "a#b").replace(";", delimiter).replace("a#b", f"a{delimiter}b")
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert read_rows(path) == [("Oslo", 1, -3.5, f"a{delimiter}b"), ROWS[1]]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zst", "a.tsv", "a.tsv.gz"])
def test_compressed_and_tab_separated_files_are_read(tmp_path: Path, name: str) -> None:
    content = LINES.encode()
    if ".tsv" in name:
        content = LINES.replace("a;b", "a#b").replace(";", "\t").replace("a#b", "a;b").encode()
    if name.endswith(".gz"):
        content = gzip.compress(content)
    elif name.endswith(".zst"):
        content = zstandard.compress(content)
    (tmp_path / name).write_bytes(content)
    assert read_rows(tmp_path / name) == ROWS


def test_first_character_outside_ascii_far_from_the_start_chooses_the_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encodings, "_BLOCK_BYTES", 100)
    ascii_rows = "".join(f"Oslo;{day};;\n" for day in range(50_000))
    path = tmp_path / "rows.csv"
    for encoding in ("utf-8", "cp1252"):
        caplog.clear()
        path.write_bytes(f"city;day;celsius;note\n{ascii_rows}Málaga;1;;€\n".encode(encoding))
        with caplog.at_level(logging.WARNING):
            rows = read_rows(path)
        assert len(rows) == 50_001
        assert rows[-1] == ("Málaga", 1, None, "€")
        assert [r.message for r in caplog.records] == (
            [f"file {path}: not UTF-8, so it is read as Windows-1252 (see --encoding)"]
            if encoding == "cp1252"
            else []
        )


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (b"city,day,note\n\xc3\xa9,1,\xff\n", {}, "not UTF-8 text.*--encoding"),
        (b"city,day,note\nx,1,\xff\n", {"encoding": "utf-8"}, "not UTF-8 text"),
        (b"city,day,note\nx,1,\xff\0\n", {}, "not UTF-8 text"),
        (b"city,day,note\nx,1,\x81\n", {}, "not UTF-8 text"),  # no character of Windows-1252
        (b"city,day,note\nx,1,\xff\n", {"encoding": "ascii"}, "not ascii text"),
        ("city,day\nx,1".encode("utf-16")[:-1], {}, "not utf-16 text"),
    ],
)
def test_bytes_that_the_encoding_does_not_have_are_refused(
    tmp_path: Path, content: bytes, options: dict[str, str], problem: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=rf"rows\.csv: {problem}"):
        read_rows(path, make_source_options(**options))  # type: ignore[arg-type]


def test_said_encoding_and_delimiter_are_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("city~day~note\nŁódź~1~a,b;c\n".encode("cp1250"))
    found = read_rows(path, SourceOptions(delimiter="~", encoding="cp1250"))
    assert found == [("Łódź", 1, None, "a,b;c")]


def test_json_lines_have_a_said_or_marked_encoding(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_bytes('{"city":"Łódź","day":1}\n'.encode(encoding))
        assert read_rows(path) == [("Łódź", 1, None, None)]
    path.write_bytes('{"city":"é","day":1}\n'.encode("latin-1"))
    assert read_rows(path, SourceOptions(encoding="latin-1")) == [("é", 1, None, None)]
    with pytest.raises(InvalidRequestError, match="row 1"):
        read_rows(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_line_ends_and_delimiters_are_part_of_values(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rows.csv"
    value = f'line 1{end}"line" 2;'
    quoted = value.replace('"', '""')
    path.write_bytes(f'city;day;note{end}Oslo;1;"{quoted}"{end}'.encode())
    assert read_rows(path) == [("Oslo", 1, None, value)]


@pytest.mark.parametrize("has_header", [True, False])
def test_line_of_another_length_is_refused_with_its_row(tmp_path: Path, has_header: bool) -> None:
    path = tmp_path / "rows.csv"
    header = "city;day;celsius;note\n" if has_header else ""
    path.write_text(f"{header}Oslo;1;2.5;x\nOslo;2;2.5\nOslo;3;2.5;y\n")
    options = (
        SourceOptions() if has_header else SourceOptions(columns=("city", "day", "celsius", "note"))
    )
    with pytest.raises(InvalidRequestError, match=r"rows\.csv, row 2: expected 4 columns, found 3"):
        read_rows(path, options)
    rejects = Rejects(io.StringIO())
    assert [row[1] for row in read_rows(path, options, rejects=rejects)] == [1, 3]
    assert rejects.count == 1


@pytest.mark.parametrize("content", ["", "\n", "city,day\n", "city;day;note", "\ufeff"])
def test_files_without_rows_are_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    assert read_rows(path) == []


def test_a_first_row_with_a_long_value_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    note = "x" * 140_000  # longer than Python's reader accepts
    path.write_text(f"city,day,note\nOslo,1,{note}\n")
    assert read_rows(path) == [("Oslo", 1, None, note)]


def test_blank_lines_before_a_header_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n\ncity;note\n\nOslo;a\n")
    schema = Schema((Field("city", P.STRING),), (), (Field("note", P.STRING),))
    for options in (SourceOptions(), SourceOptions(columns=("city", "note"))):
        assert read_rows(path, options, schema) == [("Oslo", "a")]


def test_columns_of_a_file_without_a_header_are_said_or_generated(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("Oslo;1\nLima;2\n")
    expected = [("Oslo", 1, None, None), ("Lima", 2, None, None)]
    assert read_rows(path, SourceOptions(columns=("city", "day"))) == expected
    with pytest.raises(InvalidRequestError, match="missing: 'city', 'day'"):
        read_rows(path, SourceOptions(header=False))
    generated = Schema((Field("column1", P.LONG),), (), (Field("column0", P.STRING),))
    assert read_rows(path, schema=generated) == [(1, "Oslo"), (2, "Lima")]
    path.write_text("city;day\nOslo;1\n")
    assert read_rows(path, SourceOptions(columns=("city", "day"))) == expected[:1]
    renamed = SourceOptions(columns=("day", "city"), header=True)
    with pytest.raises(InvalidRequestError, match="row 1: field 'day'"):
        read_rows(path, renamed)


def test_empty_and_repeated_names_of_a_header_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(",n,n\nx,1,2\n")
    dialect = find_dialect(path.read_bytes(), path, SourceOptions())
    assert dialect.names == ("column0", "n", "n_1")
    assert dialect.renamed == (("", "column0"), ("n", "n_1"))
    schema = Schema((Field("column0", P.STRING),), (), (Field("n", P.INT), Field("n_1", P.INT)))
    assert read_rows(path, schema=schema) == [("x", 1, 2)]
    with pytest.raises(InvalidRequestError, match="doubled: 'n'"):
        read_rows(path, schema=Schema((Field("n", P.INT),)))


@pytest.mark.parametrize(
    ("text", "delimiter", "has_header"),
    [
        ("a,b\n1,2\n", ",", True),
        ("1,2\n3,4\n", ",", False),
        ("a;b\n1,5;2,5\n", ";", True),
        ("x|1\ny|2\n", "|", False),
        ("name\tage\nAnn\t1\n", "\t", True),
        ("Ann,Bob\nCid,Dan\n", ",", True),
        ("2024-01-01;x\n2024-01-02;y\n", ";", False),
        ("day;x\n2024-01-02;y\n", ";", True),
        ("one\ntwo\n", ",", True),
        ("1\n2\n", ",", False),
        ('a,"b;c;d"\n1,"x;y;z"\n2,"x;y;z"\n', ",", True),
        ("a,b\n1,2\n3\n4,5\n", ",", True),
        ("true,1\nfalse,\n", ",", False),
    ],
)
def test_dialect_of_a_file_of_no_table_is_found(
    tmp_path: Path, text: str, delimiter: str, has_header: bool
) -> None:
    dialect = find_dialect(text.encode(), tmp_path / "a.csv", SourceOptions())
    assert (dialect.delimiter, dialect.has_header) == (delimiter, has_header)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": "::"}, "invalid delimiter: '::'"),
        ({"delimiter": '"'}, "invalid delimiter"),
        ({"delimiter": "é"}, "invalid delimiter"),
        ({"encoding": "utf8x"}, "unknown encoding: 'utf8x'"),
        ({"encoding": "base64"}, "unknown encoding: 'base64'"),
        ({"format": "xls"}, r"unknown format: 'xls' \(expected parquet, csv, json\)"),
        ({"nested": "text"}, r"unknown choice of nested columns: 'text' \(expected json\)"),
        ({"columns": ("a", "a")}, "invalid columns: 'a', 'a'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        make_source_options(**options)


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x00\ufeff"), max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), VALUES, VALUES), min_size=1, max_size=8),
    st.sampled_from(",;\t|"),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le"]),
)
def test_what_the_csv_module_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, str, str]],
    delimiter: str,
    quoting: int,
    end: str,
    encoding: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.csv"
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter=delimiter, quoting=quoting, lineterminator=end)  # type: ignore[arg-type]
    writer.writerows([("id", "left", "right"), *rows])
    path.write_bytes(sink.getvalue().encode(encoding))
    text = Field("left", P.STRING, nullable=True), Field("right", P.STRING, nullable=True)
    schema = Schema((Field("id", P.LONG),), (), text)
    options = SourceOptions(encoding="utf-16-le" if encoding == "utf-16-le" else None)
    found = read_rows(path, options, schema)
    # An empty value without quotes is null.
    empty = None if quoting == csv.QUOTE_MINIMAL else ""
    assert found == [(n, left or empty, right or empty) for n, left, right in rows]
