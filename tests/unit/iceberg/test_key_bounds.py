"""Bounds of keys in manifests: Iceberg's bytes, and bounds also of long keys."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.iceberg.key_bounds import lower_bound, upper_bound
from sleeper.schema.model import DecimalType, Field, KeyValue, PrimitiveType

P = PrimitiveType


@pytest.mark.parametrize(
    ("kind", "value", "encoded"),
    [
        (P.INT, -2, "feffffff"),
        (P.LONG, 258, "0201000000000000"),
        (P.DATE, 1, "01000000"),
        (P.TIMESTAMP, 1, "0100000000000000"),
        (P.BOOLEAN, 1, "01"),
        (P.STRING, "é", "c3a9"),
        (P.BYTE_ARRAY, b"\x00\xff", "00ff"),
        (DecimalType(9, 2), 1420, "058c"),
        (DecimalType(9, 2), -1, "ff"),
        (DecimalType(9, 2), 128, "0080"),
    ],
)
def test_bounds_are_single_values_of_the_specification(
    kind: PrimitiveType | DecimalType, value: KeyValue, encoded: str
) -> None:
    field = Field("k", kind)
    assert lower_bound(field, value).hex() == encoded
    upper = upper_bound(field, value)
    assert upper is not None
    assert upper.hex() == encoded


@given(st.text(max_size=100) | st.binary(max_size=100))
def test_no_value_is_outside_its_bounds(value: str | bytes) -> None:
    field = Field("k", P.STRING if isinstance(value, str) else P.BYTE_ARRAY)
    content = value.encode() if isinstance(value, str) else value
    lower, upper = lower_bound(field, value), upper_bound(field, value)
    assert lower <= content
    assert upper is None or upper == content
    if isinstance(value, str):
        assert content.decode().startswith(lower.decode())


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_decimals_have_the_fewest_bytes(value: int) -> None:
    encoded = lower_bound(Field("k", DecimalType(18, 0)), value)
    assert int.from_bytes(encoded, "big", signed=True) == value == Decimal(value)
    assert len(encoded) == 1 or int.from_bytes(encoded[1:], "big", signed=True) != value
