"""Values of key fields: of users, as JSON, and in the form that sorts."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import (
    key_value_from_json,
    key_value_to_json,
    region_from_json,
    region_to_json,
)
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.key_values import check_key_value, check_sorted_value, python_key_value
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    PrimitiveType,
    Schema,
    key_number_range,
    next_key_value,
    schema_from_json,
    schema_to_json,
)

TIME, DAY = PrimitiveType.TIMESTAMP, PrimitiveType.DATE
FLAG, MONEY = PrimitiveType.BOOLEAN, DecimalType(9, 2)
MICROS = 1_357_017_300_000_000
NUMBERS: tuple[FieldType, ...] = (TIME, DAY, FLAG, MONEY, DecimalType(18, 18), DecimalType(18, 0))


@pytest.mark.parametrize(
    ("kind", "value", "number"),
    [
        (TIME, "2013-01-01T05:15:00Z", MICROS),
        (TIME, "2013-01-01 05:15", MICROS),
        (TIME, "2013-01-01T06:15:00+01:00", MICROS),
        (TIME, "2013-01-01T05:15:00.000001Z", MICROS + 1),
        (TIME, "2013-01-01T05:15:00.123456000Z", MICROS + 123_456),
        (TIME, "1969-12-31T23:59:59.999999Z", -1),
        (TIME, "2013-01-01", 1_356_998_400_000_000),
        (TIME, MICROS, MICROS),
        (TIME, str(MICROS), MICROS),
        (TIME, datetime(2013, 1, 1, 5, 15), MICROS),
        (TIME, datetime(2013, 1, 1, 6, 15, tzinfo=timezone(timedelta(hours=1))), MICROS),
        (TIME, date(2013, 1, 1), 1_356_998_400_000_000),
        (TIME, -(2**63), -(2**63)),
        (DAY, "2013-01-01", 15_706),
        (DAY, date(1969, 12, 31), -1),
        (DAY, 15_706, 15_706),
        (FLAG, True, 1),
        (FLAG, False, 0),
        (FLAG, "False", 0),
        (MONEY, Decimal("12.50"), 1250),
        (MONEY, "12.5", 1250),
        (MONEY, "-12.500", -1250),
        (MONEY, 12, 1200),
        (MONEY, 0.1, 10),
        (MONEY, "1e3", 100_000),
        (MONEY, "0e999999999", 0),
        (MONEY, Decimal("9999999.99"), 10**9 - 1),
        (MONEY, "-0", 0),
        (DecimalType(18, 18), "0.000000000000000001", 1),
    ],
)
def test_values_of_users_become_numbers(kind: FieldType, value: Any, number: int) -> None:
    found = check_key_value(Field("f", kind), value)
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (TIME, "2013-01-01T05:15:00.0000001Z", "at most microseconds"),
        (TIME, "2013-13-01", "does not fit TimestampType"),
        (TIME, "noon", "expected a time such as 2013-01-31T05:15:00Z"),
        (TIME, True, "bool True does not fit"),
        (TIME, 1.5, "float 1.5 does not fit"),
        (TIME, 2**63, "does not fit TimestampType"),
        (DAY, datetime(2013, 1, 1), "expected a date such as 2013-01-31"),
        (DAY, "20130101", "expected a date such as 2013-01-31"),
        (DAY, "2013-02-30", "does not fit DateType"),
        (DAY, 2**31, "does not fit DateType"),
        (FLAG, 1, "expected true or false"),
        (FLAG, "yes", "expected true or false"),
        (MONEY, "12.505", "at most 2 decimal places"),
        (MONEY, "0.001", "at most 2 decimal places"),
        (MONEY, "1e-999999999", "at most 2 decimal places"),
        (MONEY, "10000000", "at most 9 digits"),
        (MONEY, "1e999999999", "at most 9 digits"),
        (MONEY, "nan", "finite"),
        (MONEY, float("inf"), "finite"),
        (MONEY, "much", "does not fit DecimalType(9,2)"),
        (MONEY, True, "expected a number such as 12.50"),
        (MONEY, b"1", "expected a number such as 12.50"),
    ],
)
def test_other_values_are_refused_with_the_reason(kind: FieldType, value: Any, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match="field 'f'") as refusal:
        check_key_value(Field("f", kind), value)
    assert reason in str(refusal.value)


@given(st.data())
def test_json_keeps_every_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(NUMBERS))
    field = Field("f", kind)
    low, high = key_number_range(kind) or (0, 0)
    value = data.draw(st.integers(low, high))
    raw = json.loads(json.dumps(key_value_to_json(field, value)))
    assert key_value_from_json(field, raw) == value
    check_sorted_value(field, value)
    following = next_key_value(field, value)
    assert following == (None if value == high else value + 1)


def test_values_are_json_as_users_write_them() -> None:
    shown = [key_value_to_json(Field("f", kind), 1) for kind in (TIME, DAY, FLAG, MONEY)]
    assert shown == ["1970-01-01T00:00:00.000001Z", "1970-01-02", True, "0.01"]
    assert key_value_to_json(Field("f", TIME), MICROS) == "2013-01-01T05:15:00Z"
    # Of far years
    assert key_value_to_json(Field("f", TIME), 2**63 - 1) == 2**63 - 1
    assert key_value_to_json(Field("f", DAY), -(2**31)) == -(2**31)
    assert python_key_value(Field("f", TIME), MICROS) == datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


SCHEMA = Schema(
    tuple(Field(n, k) for n, k in zip("abcd", (TIME, DAY, FLAG, MONEY), strict=True)),
    (Field("s", DecimalType(18, 3)),),
)


def test_regions_of_json() -> None:
    region = region_from_json(
        SCHEMA,
        {
            "a": {"min": "2013-01-01T05:15:00Z", "max": float(MICROS), "maxInclusive": "true"},
            "b": {"min": "2013-01-01", "minInclusive": False},
            "c": {"max": True},
            "d": {"min": "-1", "max": 1.5},
        },
    )
    ranges = (Range(MICROS, MICROS + 1), Range(15_707, None), Range(0, 1), Range(-100, 150))
    assert region == Region(ranges)
    for each in (region, whole_region(SCHEMA)):
        assert (
            region_from_json(SCHEMA, json.loads(json.dumps(region_to_json(SCHEMA, each)))) == each
        )


def test_schemas_have_such_keys_and_no_floats() -> None:
    assert schema_from_json(schema_to_json(SCHEMA)) == SCHEMA
    for kind in (PrimitiveType.FLOAT, PrimitiveType.DOUBLE):
        with pytest.raises(InvalidRequestError, match="expected DecimalType of up to 18 digits"):
            Schema((Field("f", kind),))
    with pytest.raises(InvalidRequestError, match="expected a precision of at most 18"):
        Schema((Field("f", DecimalType(19, 2)),))
