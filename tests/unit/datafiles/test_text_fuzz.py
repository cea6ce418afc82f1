"""Random text is rows or an invalid request, and written text is read exactly."""

import contextlib
import csv
import datetime as dt
import io
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema
from tests.examples import examples

P = PrimitiveType
SCHEMA = Schema(
    (Field("id", P.LONG),),
    (),
    (
        Field("text", P.STRING, nullable=True),
        Field("ratio", P.DOUBLE),
        Field("price", DecimalType(12, 3)),
        Field("at", P.TIMESTAMP),
        Field("tags", ListType(P.STRING)),
        Field("props", MapType(P.STRING, P.LONG)),
    ),
)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
PRICES = st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3))
ROWS = st.lists(
    st.tuples(
        LONGS,
        st.none() | TEXTS,
        st.floats(allow_nan=False),
        PRICES,
        st.datetimes(timezones=st.just(dt.UTC)),
        st.lists(TEXTS, max_size=3),
        st.dictionaries(TEXTS, LONGS, max_size=3),
    ),
    max_size=6,
)
CHUNKS = st.sampled_from(
    [
        *(b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"{", b"}", b"[", b"]", b":", b"\\", b"0x10"),
        *(
            b'{"id": 1}',
            b'"text":',
            b"NaN",
            b"-Infinity",
            b"1e400",
            b"\xff",
            b"\xc3",
            b"\0",
            b"9" * 40,
        ),
        *(
            b"id,text,ratio,price,at,tags,props\n",
            b'1,a,1.5,2,2020-01-01,[],"{}"\n',
            b"\xef\xbb\xbf",
        ),
    ]
)
CONTENTS = st.lists(CHUNKS | st.binary(max_size=3), max_size=20).map(b"".join)


def read(name: str, content: bytes, rejects: Rejects | None = None) -> list[tuple[Any, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        source = read_csv if name.endswith(".csv") else read_json_lines
        checker = RowChecker(SCHEMA, str(path), rejects, line_bytes_max=10_000)
        return [tuple(row.values()) for batch in source(path, checker) for row in batch.to_pylist()]


def expect_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:-1], list(row[-1].items()))


@settings(deadline=None, max_examples=examples(30), print_blob=True)
@given(ROWS)
def test_csv_round_trip(rows: list[tuple[Any, ...]]) -> None:
    lines = ["id,text,ratio,price,at,tags,props\n"]
    for key, text, ratio, price, time, tags, props in rows:
        cells = [
            *(key, text, repr(ratio), price, time.isoformat()),
            *(json.dumps(tags), json.dumps(props, ensure_ascii=False)),
        ]
        quoted_text = ("" if c is None else '"' + str(c).replace('"', '""') + '"' for c in cells)
        lines.append(",".join(quoted_text) + "\n")
    content = "".join(lines)
    result = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    assert len(result) == len(rows) + 1
    assert read("rows.csv", content.encode()) == [expect_row(row) for row in rows]


@settings(deadline=None, max_examples=examples(30), print_blob=True)
@given(ROWS, st.booleans())
def test_json_round_trip(rows: list[tuple[Any, ...]], is_ascii: bool) -> None:
    lines = []
    for row in rows:
        members = dict(zip((f.name for f in SCHEMA.fields), row, strict=True))
        members["price"] = "PRICE"
        members["at"] = members["at"].isoformat()
        line = json.dumps(members, ensure_ascii=is_ascii)
        lines.append(line.replace('"price": "PRICE"', f'"price": {row[3]:f}') + "\n")
    assert read("rows.jsonl", "".join(lines).encode()) == [expect_row(row) for row in rows]


@settings(deadline=None, max_examples=examples(100), print_blob=True)
@given(CONTENTS, st.sampled_from(["rows.csv", "rows.jsonl"]), st.booleans())
def test_any_bytes_are_rows_or_refused(content: bytes, name: str, sets_aside: bool) -> None:
    with contextlib.suppress(InvalidRequestError):
        read(name, content, Rejects(io.StringIO()) if sets_aside else None)
