"""Regions of single keys: the same regions as one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.region import Region, hull, key_region
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema

VALUES: dict[PrimitiveType, st.SearchStrategy[KeyValue]] = {
    PrimitiveType.INT: st.sampled_from([-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    PrimitiveType.STRING: st.text("a\0ü\U0001f600", max_size=3),
    PrimitiveType.BYTE_ARRAY: st.binary(max_size=2),
}


def one_by_one(field: Field, values: list[KeyValue]) -> list[Region]:
    schema = Schema((field,))
    return [key_region(schema, (value,)) for value in sorted(set(values))]  # type: ignore[type-var]


@given(st.data(), st.sampled_from(list(VALUES)))
def test_keys_have_the_regions_of_each_key(data: st.DataObject, kind: PrimitiveType) -> None:
    field = Field("key", kind)
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=6))
    keys, expected = KeyRegions.from_values(field, values), one_by_one(field, values)
    assert list(keys) == expected
    assert keys == tuple(expected)
    assert keys.hull == hull(expected)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
    assert list(keys[start:stop]) == expected[start:stop]
    selectors = data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
    kept = [region for region, keeps in zip(expected, selectors, strict=True) if keeps]
    assert list(keys.keep(selectors)) == kept
    value = data.draw(VALUES[kind])
    assert keys.before(value) == sum(r.ranges[0].min < value for r in expected)  # type: ignore[operator]
    assert keys.before(None) == len(expected)


def test_a_slice_knows_its_place_in_the_whole() -> None:
    keys = KeyRegions.from_values(Field("key", PrimitiveType.LONG), range(10))
    part = keys[2:9][3:5]
    assert (part.whole, part.position, part.values) == (keys, 5, [5, 6])
    assert keys.keep([n % 2 == 0 for n in range(10)]).whole.values == [0, 2, 4, 6, 8]


def test_a_slice_has_no_step() -> None:
    with pytest.raises(ValueError, match="step of 2"):
        KeyRegions.from_values(Field("key", PrimitiveType.LONG), range(10))[::2]
