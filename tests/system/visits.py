"""A table's rows as clients send them, and as they must come back."""

import base64
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tests.system.formats_client import encoded

VISITS = {
    "rowKeyFields": [{"name": "id", "type": "StringType"}],
    "sortKeyFields": [{"name": "time", "type": "LongType"}],
    "valueFields": [
        {"name": "count", "type": "IntType", "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        {"name": "props", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "raw", "type": "ByteArrayType"},
    ],
}
_TAG = pa.field("element", pa.string(), nullable=False)
STORED = {
    "id": pa.string(),
    "time": pa.int64(),
    "count": pa.int32(),
    "tags": pa.list_(_TAG),
    "props": pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
    "raw": pa.binary(),
}
# What clients send: integers as INT64, columns in an order of their own.
UPLOADED = pa.schema(
    [
        ("raw", pa.binary()),
        ("props", pa.map_(pa.string(), pa.int64())),
        ("tags", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("time", pa.int64()),
        ("id", pa.string()),
    ]
)
INGESTED, IMPORTED = 5000, 2000
"""How many rows are sent for ingest, and after them for bulk import."""

Row = dict[str, Any]


def visit(number: int) -> Row:
    """A row, from anywhere in the key space."""
    return {
        "id": f"{chr(65 + number * 7 % 26)}{number:06}",
        "time": number * 1_000_003,
        "count": None if number % 11 == 0 else number,
        "tags": [f"t{number % 3}"] * (number % 3),
        "props": {"n": number, "m": -number} if number % 2 else {},
        "raw": bytes([number % 256, 0]),
    }


def visits(first: int, count: int) -> pa.Table:
    """Rows as a client uploads them."""
    rows = [visit(number) for number in range(first, first + count)]
    return pa.Table.from_pylist(rows, UPLOADED)


def expected(first: str = "", last: str = "Z9") -> list[Row]:
    """All rows that are sent, from a key to another (not included), in order."""
    rows = (visit(number) for number in range(INGESTED + IMPORTED))
    return sorted((r for r in rows if first <= r["id"] < last), key=key_of)


def list_rows(tables: Iterable[pa.Table]) -> list[Row]:
    """Rows of result files, each of which must be in order, in the order of all."""
    results: list[Row] = []
    for table in tables:
        types = {field.name: field.type for field in table.schema}
        assert types == STORED, types
        rows = [{**row, "props": dict(row["props"])} for row in table.to_pylist()]
        assert rows == sorted(rows, key=key_of)
        results += rows
    return sorted(results, key=key_of)


def rows_of_json(rows: Iterable[Row]) -> list[Row]:
    """Rows of messages and frames, in order."""
    content = [{**row, "raw": base64.b64decode(row["raw"])} for row in rows]
    return sorted(content, key=key_of)


def region(first: str, last: str) -> list[Any]:
    """From a key to another, whose strings are as regions have them by default."""
    return [{"id": {"min": encoded(first), "max": encoded(last)}}]


def key_of(row: Row) -> tuple[str, int]:
    """What orders rows."""
    return row["id"], row["time"]
