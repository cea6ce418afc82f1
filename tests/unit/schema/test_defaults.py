"""Defaults of fields: their stored form, and values that do not fit."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.schema.defaults import check_default, default_value, parse_default
from sleeper.schema.model import (
    DecimalType,
    Default,
    Field,
    FieldType,
    ListType,
    PrimitiveType,
    schema_from_json,
)


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        (PrimitiveType.INT, "-7", -7),
        (PrimitiveType.LONG, str(2**63 - 1), 2**63 - 1),
        (PrimitiveType.FLOAT, "0.1", 0.10000000149011612),
        (PrimitiveType.DOUBLE, "0.1", 0.1),
        (PrimitiveType.STRING, "7", "7"),
        (PrimitiveType.BYTE_ARRAY, "AP8=", "AP8="),
        (PrimitiveType.BOOLEAN, "true", True),
        (PrimitiveType.DATE, "2026-01-31", "2026-01-31"),
        (PrimitiveType.TIMESTAMP, "2026-01-31T12:00:00", "2026-01-31T12:00:00+00:00"),
        (PrimitiveType.TIMESTAMP, "2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00+00:00"),
        (DecimalType(5, 2), "-1.5", "-1.50"),
        (DecimalType(5, 2), "1e2", "100.00"),
        (DecimalType(38, 0), "9" * 38, "9" * 38),
        (DecimalType(38, 38), "0", "0.00000000000000000000000000000000000000"),
    ],
)
def test_a_default_has_one_stored_form(kind: FieldType, text: str, stored: Default) -> None:
    found = check_default(Field("f", kind, default=parse_default(kind, text)))
    assert found == stored
    assert type(found) is type(stored)
    assert check_default(Field("f", kind, default=found)) == stored


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (PrimitiveType.INT, "2147483648", "expected -2147483648 to 2147483647"),
        (PrimitiveType.INT, "1.5", "expected an integer"),
        (PrimitiveType.FLOAT, "1e39", "expected a finite number"),
        (PrimitiveType.DOUBLE, "nan", "expected a finite number"),
        (PrimitiveType.DOUBLE, "x", "expected a number"),
        (PrimitiveType.BOOLEAN, "yes", "expected true or false"),
        (PrimitiveType.BYTE_ARRAY, "=", "padding"),
        (PrimitiveType.DATE, "31.1.2026", "Invalid isoformat"),
        (PrimitiveType.STRING, "\ud800", "expected Unicode text"),
        (DecimalType(5, 2), "1000", "expected at most 5 digits"),
        (DecimalType(5, 2), "1.234", "expected at most 2 decimal places"),
        (DecimalType(5, 2), "Infinity", "expected a finite number"),
        (DecimalType(5, 2), "x", "does not fit"),
        (ListType(PrimitiveType.INT), "[1]", "lists, maps and JSON have no default"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(kind: FieldType, text: str, expected: str) -> None:
    field = Field("f", kind, default=parse_default(kind, text))
    with pytest.raises(InvalidRequestError, match=f"field 'f': default .*{expected}"):
        default_value(field)


def test_ids_of_a_schema_are_different() -> None:
    text = '{"rowKeyFields":[{"name":"k","type":"LongType","id":2}],"valueFields":[%s]}'
    value = '{"name":"v","type":"LongType"%s}'
    assert schema_from_json(text % (value % "")).field("v").id == 3
    for wrong in (',"id":2', ',"id":-1'):
        with pytest.raises(InvalidRequestError, match="expected different ids from 1"):
            schema_from_json(text % (value % wrong))
