"""Documents as Arrow batches: blocks that Arrow parses whole, and blocks that it cannot."""

from decimal import Decimal

import pyarrow as pa
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources import json_rows
from sleeper.datafiles.text_values import parse_values
from sleeper.errors import DataError
from sleeper.schema.model import DecimalType, Field, ListType, PrimitiveType, Schema
from sleeper.stash.batches import parse_documents

FIELDS = Schema(
    (Field("k", PrimitiveType.LONG),),
    (),
    (
        Field("f", PrimitiveType.DOUBLE),
        Field("t", PrimitiveType.TIMESTAMP),
        Field("b", PrimitiveType.BYTE_ARRAY),
        Field("d", PrimitiveType.DATE),
        Field("x", DecimalType(38, 2)),
        Field("l", ListType(PrimitiveType.DATE)),
    ),
)
PLAIN = (
    '{"k":1,"f":0.5,"t":"2026-03-01T06:00:00.000001Z","b":"/w==","d":"2026-03-01",'
    '"x":123456789012345678901234567890123456.78,"l":["2026-03-01"]}\n'
)


def parse(block: str) -> pa.RecordBatch:
    return parse_documents(block.encode(), FIELDS, "table t")


def test_a_plain_block_is_parsed_without_a_look_at_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_rows, "parse_lines", None)
    found = parse(PLAIN * 50)
    assert found.schema == arrow_schema(FIELDS)
    assert found.num_rows == 50
    assert found.slice(0, 1).to_pylist() * 50 == found.to_pylist()
    assert found["x"][0].as_py() == Decimal("123456789012345678901234567890123456.78")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", '"NaN"'),
        ("0.5", '"-Infinity"'),
        ("2026-03-01T", "12026-03-01T"),
        ("2026-03-01T", "0000-03-01T"),
        ("2026-03-01T", "-0001-03-01T"),
    ],
)
def test_values_that_arrow_does_not_accept(old: str, new: str) -> None:
    block = PLAIN.replace(old, new) + PLAIN
    expected = json_rows.parse_lines(block.encode().splitlines(), FIELDS)
    found = parse(block)
    assert str(found["f"]) == str(expected["f"])
    assert found["t"].equals(parse_values(expected["t"], PrimitiveType.TIMESTAMP))


@pytest.mark.parametrize(
    "block",
    [
        PLAIN.replace("0.5", "1e999"),
        PLAIN.replace("0.5", '"much"'),
        PLAIN.replace('"k":1', '"k":1,"more":2'),
        PLAIN.replace("\n", "") + PLAIN,
        PLAIN.replace("/w==", "/w!"),
        PLAIN + "[]\n",
        PLAIN + "\x00\n",
    ],
)
def test_damaged_lines_are_errors(block: str) -> None:
    with pytest.raises(DataError, match="table t is damaged"):
        parse(block)


def test_a_last_line_without_its_end_and_blank_lines() -> None:
    assert parse(PLAIN + PLAIN[:-1]).num_rows == 2
    assert parse("\n" + PLAIN).num_rows == 1
    assert parse("\n").num_rows == 0
