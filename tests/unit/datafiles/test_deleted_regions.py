"""The filter of deleted rows agrees with a comparison row by row."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.merge.deletes import DeletedBoxes, DeletedRows
from sleeper.partitions.region import Range, Region, key_region, subtract_regions, whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema

VALUES = {
    PrimitiveType.INT: st.integers(-9, 9),
    PrimitiveType.LONG: st.integers(-9, 9),
    PrimitiveType.STRING: st.text("abä\U0001f600", max_size=2),
    PrimitiveType.BYTE_ARRAY: st.binary(max_size=2),
}
ARROW = {
    PrimitiveType.INT: pa.int32(),
    PrimitiveType.LONG: pa.int64(),
    PrimitiveType.STRING: pa.string_view(),
    PrimitiveType.BYTE_ARRAY: pa.binary_view(),
}


@st.composite
def deleted_rows(draw: st.DrawFn) -> tuple[Schema, list[Region], list[tuple[object, ...]]]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    fields = tuple(Field(f"key{i}", kind) for i, kind in enumerate(types))
    schema = Schema(fields, (), ())
    keys = st.tuples(*(VALUES[kind] for kind in types))
    regions = []
    for low, high, is_key in draw(
        st.lists(st.tuples(keys, st.none() | keys, st.booleans()), max_size=8)
    ):
        if is_key:
            regions.append(key_region(schema, low))
            continue
        ends = high or (None,) * len(low)
        ranges = tuple(Range(a, b) for a, b in zip(low, ends, strict=True))
        if all(r.max is None or r.min < r.max for r in ranges):
            regions.append(Region(ranges))
    return schema, regions, sorted(draw(st.lists(keys, max_size=30)))


@given(deleted_rows())
def test_a_row_is_kept_unless_a_region_contains_its_key(
    example: tuple[Schema, list[Region], list[tuple[object, ...]]],
) -> None:
    schema, regions, rows = example
    columns = [
        pa.array([row[i] for row in rows], ARROW[field.type])
        for i, field in enumerate(schema.row_keys)
    ]
    expected = [not any(region.contains(row) for region in regions) for row in rows]
    for are_in_order in (True, False):
        deleted = DeletedRows(schema, regions, are_in_order=are_in_order)
        assert deleted.keep(*columns).to_pylist() == expected


@given(deleted_rows())
def test_subtracted_regions_contain_the_keys_outside_of_the_others(
    example: tuple[Schema, list[Region], list[tuple[object, ...]]],
) -> None:
    schema, regions, rows = example
    left = subtract_regions([whole_region(schema)], regions, 10_000)
    assert left is not None
    for row in rows:
        inside = sum(region.contains(row) for region in left)
        assert inside == int(not any(region.contains(row) for region in regions))


def test_more_pieces_than_allowed_are_not_computed() -> None:
    schema = Schema((Field("key", PrimitiveType.LONG),), (), ())
    keys = [key_region(schema, (value,)) for value in (1, 5, 9)]
    whole = [whole_region(schema)]
    assert subtract_regions(whole, keys, 3) is None
    pieces = subtract_regions(whole, keys, 4)
    assert pieces is not None
    assert len(pieces) == 4


@pytest.mark.parametrize("count", [10_000])
def test_a_batch_is_compared_with_the_regions_near_it(count: int) -> None:
    schema = Schema((Field("key", PrimitiveType.LONG),), (), ())
    regions = [Region((Range(10 * i, 10 * i + 2),)) for i in range(count)]
    assert len(DeletedBoxes(schema, [pa.int64()], regions)._near((500,), (540,))) == 5
    kept = DeletedRows(schema, regions).keep(pa.array(range(500, 541), pa.int64()))
    assert pa.compute.sum(kept).as_py() == 41 - 9
