"""Key regions of constraints: complete, and exact for settled fields."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.athena import filters
from sleeper.athena.constraints import value_set_from_json
from sleeper.athena.filters import filter_rows, key_regions
from sleeper.datafiles.arrow import arrow_type
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema
from tests.unit.athena.protocol import DATE_MILLI, Json, among, block, from_to, ranges

SCHEMA = Schema(
    (
        Field("n", PrimitiveType.INT),
        Field("s", PrimitiveType.STRING),
        Field("b", PrimitiveType.BYTE_ARRAY),
    )
)
BELOW_MS = st.sampled_from([0, 1, 999])
# Hypothesis builds its Unicode tables for the first text.
SLOW_TO_BEGIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OTHERS = Schema(
    (
        Field("t", PrimitiveType.TIMESTAMP),
        Field("d", PrimitiveType.DATE),
        Field("y", PrimitiveType.BOOLEAN),
        Field("m", DecimalType(9, 2)),
    )
)
KINDS = {
    "n": pa.int32(),
    "s": pa.string(),
    "b": pa.binary(),
    "t": DATE_MILLI,
    "d": pa.date32(),
    "y": pa.bool_(),
    "m": pa.decimal128(9, 2),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.sampled_from([-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "s": st.sampled_from(["", "a", "a\0", "b", "\U0001f600"]),
    "b": st.sampled_from([b"", b"a", b"a\0", b"\xff", b"\xff\xff"]),
    "t": st.integers(-2, 2),
    "d": st.integers(1, 5).map(lambda n: date(1969, 12, 26 + n)),
    "y": st.booleans(),
    "m": st.sampled_from([Decimal("-9999999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.01")]),
}


@st.composite
def value_sets(draw: st.DrawFn, name: str) -> Json:
    kind, values = KINDS[name], VALUES[name]
    match draw(st.sampled_from(["ranges", "among", "listed", "all"])):
        case "ranges":
            low, high = draw(st.none() | values), draw(st.none() | values)
            lower = "ABOVE" if low is None else draw(st.sampled_from(["ABOVE", "EXACTLY"]))
            upper = "BELOW" if high is None else draw(st.sampled_from(["BELOW", "EXACTLY"]))
            return ranges(kind, (low, lower, high, upper))
        case "among":
            return among(kind, *sorted(draw(st.sets(values))))
        case "listed":
            return {
                "@type": "EquatableValueSet",
                "valueBlock": block(draw(st.lists(values, max_size=3)), kind),
                "whiteList": draw(st.booleans()),
                "nullAllowed": False,
            }
        case _:
            return {"@type": "AllOrNoneValueSet", "all": draw(st.booleans()), "nullAllowed": True}


@pytest.mark.parametrize("schema", [SCHEMA, OTHERS])
@SLOW_TO_BEGIN
@given(st.data())
def test_regions_contain_exactly_the_keys_that_meet_settled_constraints(
    schema: Schema, data: st.DataObject
):
    names = [field.name for field in schema.row_keys]
    optional = {name: value_sets(name) for name in names}
    summary = data.draw(st.fixed_dictionaries({}, optional=optional))
    one_key = st.tuples(*(VALUES[name] for name in names))
    keys = data.draw(st.lists(one_key, min_size=1, max_size=20))
    sets = {name: value_set_from_json(name, raw) for name, raw in summary.items()}
    result = key_regions(schema, sets, whole_region(schema))
    settled = {name: item for name, item in sets.items() if name in result.settled}
    assert set(sets) - set(settled) <= {
        name for name, raw in summary.items() if not raw.get("whiteList", False)
    }
    for key in keys:
        # A time is later than its milliseconds, which are all that Athena reads.
        stored = [
            v * 1000 + data.draw(BELOW_MS) if n == "t" else v
            for n, v in zip(names, key, strict=True)
        ]
        row = pa.RecordBatch.from_arrays(
            [
                pa.array([v], arrow_type(f.type))
                for f, v in zip(schema.row_keys, stored, strict=True)
            ],
            names,
        )
        meets = filter_rows(row, settled).num_rows == 1
        sorted_key = tuple(map(check_key_value, schema.row_keys, stored))
        assert sum(region.contains(sorted_key) for region in result.regions) == meets


def test_regions_lie_within_the_given_region():
    within = Region((Range(10, 20), *whole_region(SCHEMA).ranges[1:]))
    among_numbers = value_set_from_json("n", among(pa.int32(), 9, 10, 19, 20))
    result = key_regions(SCHEMA, {"n": among_numbers}, within)
    assert [region.ranges[0] for region in result.regions] == [Range(10, 11), Range(19, 20)]


def test_too_many_regions_are_merged(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(filters, "_REGIONS_MAX", 4)
    sets = {
        "n": value_set_from_json("n", among(pa.int32(), 1, 2, 5)),
        "s": value_set_from_json("s", among(pa.string(), "a", "c")),
    }
    result = key_regions(SCHEMA, sets, whole_region(SCHEMA))
    assert result.settled == {"n"}
    assert [r.ranges[0].min for r in result.regions] == [1, 2, 5]
    assert {r.ranges[1] for r in result.regions} == {Range("a", "c\0")}


def test_a_constraint_of_another_type_does_not_restrict_regions():
    sets = {"n": value_set_from_json("n", from_to(pa.int64(), 2**40, None))}
    result = key_regions(SCHEMA, sets, whole_region(SCHEMA))
    assert result.regions == (whole_region(SCHEMA),)
    assert not result.settled
