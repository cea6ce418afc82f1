"""Lists of maps are merged into one map each, for any slice of any array."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.merge.processing import merge_maps
from sleeper.processing.model import AggregationOp
from sleeper.schema.model import MapType, PrimitiveType
from tests.examples import examples

P = PrimitiveType
OPS = [AggregationOp.MAP_SUM, AggregationOp.MAP_MIN, AggregationOp.MAP_MAX]

entries = st.lists(st.tuples(st.text("aé😀", max_size=2), st.integers(-(2**31), 2**31 - 1)))
lists = st.lists(st.none() | st.lists(st.none() | entries, max_size=4), max_size=6)


def expected(maps: list | None, op: AggregationOp) -> list | None:
    present = [m for m in maps or () if m is not None]
    if not present:
        return None
    results: dict = {}
    for key, value in (entry for m in present for entry in m):
        previous = results.get(key)
        if previous is None:
            results[key] = value
        elif op is AggregationOp.MAP_SUM:
            results[key] = (previous + value + 2**31) % 2**32 - 2**31
        else:
            results[key] = (min if op is AggregationOp.MAP_MIN else max)(previous, value)
    return sorted(results.items())


@settings(max_examples=examples(100), deadline=None)
@given(lists, st.sampled_from(OPS), st.integers(0, 6), st.integers(0, 6))
def test_any_part_of_an_array(data: list, op: AggregationOp, start: int, length: int):
    kind = arrow_type(MapType(P.STRING, P.INT))
    part = pa.array(data, pa.list_(kind)).slice(start, length)
    result = merge_maps(part, op, kind)
    assert result.type == kind
    assert result.to_pylist() == [expected(item, op) for item in data[start : start + length]]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("key", [P.INT, P.LONG, P.BOOLEAN, P.BYTE_ARRAY, P.STRING])
def test_many_lists_at_once(op: AggregationOp, key: PrimitiveType):
    values = random.Random(7)
    of_key = {
        P.INT: lambda: values.randint(-9, 9),
        P.LONG: lambda: values.choice([-(2**63), 2**63 - 1, 0, 5]),
        P.BOOLEAN: lambda: values.random() < 0.5,
        P.BYTE_ARRAY: lambda: values.randbytes(1),
        P.STRING: lambda: values.choice("zyxcba"),
    }[key]

    def a_map() -> list:
        return [(of_key(), values.randint(-5, 5)) for _ in range(values.randint(0, 5))]

    data = [[a_map() for _ in range(values.randint(0, 3))] for _ in range(3000)]
    kind = arrow_type(MapType(key, P.LONG))
    rows = merge_maps(pa.array(data, pa.list_(kind)), op, kind).to_pylist()
    assert rows == [expected(item, op) for item in data]
