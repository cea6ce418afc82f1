"""Constraints on columns, compared with a filter in plain Python."""

import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.athena.constraints import value_set_from_json
from sleeper.athena.filters import column_mask, filter_rows
from sleeper.errors import InvalidRequestError
from tests.unit.athena.protocol import DATE_MILLI, among, block, from_to, ranges

# Hypothesis builds its Unicode tables for the first text.
SLOW_TO_BEGIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0]),
    DATE_MILLI: st.integers(-(10**12), 10**12) | st.integers(-3, 3),
    pa.date32(): st.dates(),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(
        lambda n: decimal.Decimal(n).scaleb(-2)
    ),
}
KINDS = st.sampled_from(list(VALUES))


def order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def is_in_range(value: Any, low: Any, lower: str, high: Any, upper: str) -> bool:
    above = low is None or order(value) > order(low) or (lower == "EXACTLY" and value == low)
    below = high is None or order(value) < order(high) or (upper == "EXACTLY" and value == high)
    return above and below


def column_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """A column of the table, of times with microseconds below the milliseconds."""
    if kind != DATE_MILLI:
        return pa.array(values, kind)
    micros = [None if v is None else v * 1000 + v % 1000 for v in values]
    return pa.array(micros, pa.timestamp("us", tz="UTC"))


def mask_values(kind: pa.DataType, values: list[Any], raw: dict[str, Any]) -> list[bool]:
    mask = column_mask("c", column_of(kind, values), value_set_from_json("c", raw))
    assert mask.null_count == 0
    return mask.to_pylist()


@st.composite
def ranges_and_values(draw: st.DrawFn) -> tuple[Any, ...]:
    kind = draw(KINDS)
    values = VALUES[kind]
    bounds = st.tuples(
        st.none() | values,
        st.sampled_from(["ABOVE", "EXACTLY"]),
        st.none() | values,
        st.sampled_from(["BELOW", "EXACTLY"]),
    )
    pairs = [
        (low, lower if low is not None else "ABOVE", high, upper if high is not None else "BELOW")
        for low, lower, high, upper in draw(st.lists(bounds, max_size=3))
    ]
    return kind, pairs, draw(st.booleans()), draw(st.lists(st.none() | values, max_size=6))


@SLOW_TO_BEGIN
@given(ranges_and_values())
def test_ranges_accept_the_same_values_as_a_plain_filter(sample: tuple[Any, ...]):
    kind, pairs, null, values = sample
    expected = [null if v is None else any(is_in_range(v, *pair) for pair in pairs) for v in values]
    assert mask_values(kind, values, ranges(kind, *pairs, null=null)) == expected


@SLOW_TO_BEGIN
@given(
    KINDS.flatmap(
        lambda k: st.tuples(
            st.just(k), st.lists(VALUES[k], max_size=4), st.lists(st.none() | VALUES[k], max_size=6)
        )
    ),
    st.booleans(),
    st.booleans(),
)
def test_lists_of_values_and_their_complements(
    sample: tuple[Any, ...], is_white_list: bool, null: bool
):
    kind, listing, values = sample
    raw = {
        "@type": "EquatableValueSet",
        "valueBlock": block(listing, kind),
        "whiteList": is_white_list,
        "nullAllowed": null,
    }
    expected = [null if v is None else (v in listing) == is_white_list for v in values]
    assert mask_values(kind, values, raw) == expected


@SLOW_TO_BEGIN
@given(
    KINDS.flatmap(
        lambda k: st.tuples(
            st.just(k), st.lists(VALUES[k], max_size=4), st.lists(st.none() | VALUES[k], max_size=6)
        )
    )
)
def test_single_values_use_a_lookup(sample: tuple[Any, ...]):
    kind, listing, values = sample
    assert mask_values(kind, values, among(kind, *listing)) == [v in listing for v in values]


@pytest.mark.parametrize("is_all", [True, False])
@pytest.mark.parametrize("null", [True, False])
def test_all_or_none_applies_to_lists_and_maps(is_all: bool, null: bool):
    raw = {"@type": "AllOrNoneValueSet", "type": {}, "all": is_all, "nullAllowed": null}
    # The SDK writes `all && nullAllowed`: neither is NOT NULL.
    is_contained = is_all or not null
    expected = [is_contained, null, is_contained]
    assert mask_values(pa.list_(pa.string()), [["a"], None, []], raw) == expected
    assert mask_values(pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], raw) == expected[:2]
    assert mask_values(pa.string(), ["a", None], raw) == expected[:2]


def test_nan_is_above_every_number_as_in_the_sdk():
    assert mask_values(pa.float64(), [math.nan, 1.0], from_to(pa.float64(), 2.0, None)) == [
        True,
        False,
    ]
    assert mask_values(pa.float64(), [math.nan, 1.0], from_to(pa.float64(), None, 2.0)) == [
        False,
        True,
    ]


def test_rows_must_meet_the_constraints_of_all_columns():
    batch = pa.record_batch({"a": [1, 2, 3, 4], "b": ["x", "y", None, "x"]})
    result = filter_rows(
        batch,
        {
            "a": value_set_from_json("a", from_to(pa.int64(), 2, None)),
            "b": value_set_from_json("b", among(pa.string(), "x", null=True)),
        },
    )
    assert result.to_pydict() == {"a": [3, 4], "b": [None, "x"]}
    assert filter_rows(batch, {}) is batch


def test_a_constraint_of_another_type_is_refused_by_its_column():
    with pytest.raises(InvalidRequestError, match="constraint of column 'c' does not fit"):
        mask_values(pa.int64(), [1], among(pa.string(), "x"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"@type": "Regex"}, "unknown kind: 'Regex'"),
        ({"@type": "SortedRangeSet", "ranges": []}, "'nullAllowed'"),
        ({**ranges(pa.int64(), (1, "BESIDE", None, "BELOW"))}, "bound 'BESIDE'"),
        ({**among(pa.int64(), 1), "ranges": [{"low": 1}]}, "'low'"),
        ({"@type": "EquatableValueSet", "valueBlock": {"schema": "!"}}, "not base64|records"),
        ([], "'@type'"),
    ],
)
def test_an_invalid_value_set_is_refused_with_the_reason(raw: Any, reason: str):
    with pytest.raises(InvalidRequestError, match=reason):
        value_set_from_json("c", raw)
