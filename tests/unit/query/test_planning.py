"""Regions that overlap a file, compared with a linear search."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.files import DataFile
from sleeper.partitions.region import Range, Region, disjoint_regions
from sleeper.query.plan import _contains, _overlapping

small = st.integers(-6, 6)
ranges = st.tuples(small, st.none() | small).filter(lambda r: r[1] is None or r[0] < r[1])
bounds = st.tuples(small, small).map(sorted)


@settings(deadline=None)
@given(st.integers(1, 2), st.data())
def test_binary_search_finds_overlapping_regions(fields: int, data: st.DataObject) -> None:
    field_ranges = st.tuples(*(ranges for _ in range(fields)))
    sample = data.draw(st.lists(field_ranges, min_size=1, max_size=8))
    regions = tuple(disjoint_regions(Region(tuple(Range(*r) for r in item)) for item in sample))
    low, high = zip(*data.draw(st.tuples(*(bounds for _ in range(fields)))), strict=True)
    file = DataFile("f.parquet", 1, 1, low, high)
    expected = _overlapping(regions, file)
    assert expected == tuple(r for r in regions if r.overlaps_bounds(low, high))
    assert _contains(expected, file) == any(r.contains_bounds(low, high) for r in regions)
    if len(expected) == len(regions):
        assert expected is regions
