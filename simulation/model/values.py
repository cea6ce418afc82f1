"""Random values of each type of field, and one form of values in which rows are compared.

There are few distinct values of a type, so that keys collide, and the extremes are among them.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType

Value = Any
"""A value of a row as `pyarrow` converts it to Python."""

_NULL_PROBABILITY = 0.15

_DOMAINS: dict[PrimitiveType, Sequence[Value]] = {
    PrimitiveType.INT: (*range(-6, 7), -(2**31), 2**31 - 1),
    PrimitiveType.LONG: (*range(-6, 7), -(2**63), 2**63 - 1),
    PrimitiveType.STRING: (
        "",
        "a",
        "aa",
        "ab",
        "b",
        "é",
        "éa",
        "z",
        "\uffee",
        "\U0001f600",
        "日本",
    ),
    PrimitiveType.BYTE_ARRAY: (b"", b"\x00", b"\x00\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xff"),
    PrimitiveType.BOOLEAN: (False, True),
    PrimitiveType.FLOAT: (0.0, 1.5, -2.25, 1024.0, -(2.0**100)),
    PrimitiveType.DOUBLE: (0.0, 1.5, -2.25, 1e300, -1e-300),
    PrimitiveType.TIMESTAMP: (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 30, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 30, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    PrimitiveType.JSON: (
        "null",
        "1.10",
        "-0",
        str(2**70),
        "true",
        '""',
        '"a, \\"b\\": \\u00e9"',
        "[]",
        "[1,[2,{}]]",
        '{"k0": {"~id": "x"}, "é": null}',
        '{"a":1.50,"b":"\U0001f600"}',
    ),
    PrimitiveType.DATE: (
        date(1, 1, 1),
        date(1969, 12, 31),
        date(1970, 1, 1),
        date(2026, 1, 1),
        date(9999, 12, 31),
    ),
}


def random_value(random: Random, kind: FieldType, nullable: bool = False) -> Value:
    """Returns a random value of the type, sometimes null if it may be."""
    if nullable and random.random() < _NULL_PROBABILITY:
        return None
    match kind:
        case PrimitiveType():
            return random.choice(_DOMAINS[kind])
        case DecimalType(precision, scale):
            largest = 10**precision - 1
            units = random.choice((*range(-3, 4), -largest, largest))
            return Decimal(units).scaleb(-scale)
        case ListType(element):
            return [random_value(random, element) for _ in range(random.randrange(3))]
        case MapType(key, value):
            keys = {random_value(random, key) for _ in range(random.randrange(3))}
            return [(each, random_value(random, value)) for each in sorted(keys)]


def comparable(value: Value) -> Value:
    """Returns the value in a form that is hashable and equal exactly for equal values."""
    if isinstance(value, list | tuple):
        return tuple(comparable(each) for each in value)
    return value


def batch_rows(batch: pa.RecordBatch | pa.Table) -> list[tuple[Value, ...]]:
    """Returns the rows of a batch in the form in which they are compared."""
    columns = [column.to_pylist() for column in batch.columns]
    return [tuple(map(comparable, row)) for row in zip(*columns, strict=True)]
