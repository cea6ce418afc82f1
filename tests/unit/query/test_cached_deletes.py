"""Deletes in memory, compared with a loop over all of them."""

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.partitions.region import Range, Region
from sleeper.query import newest_versions
from sleeper.query.newest_versions import CachedDeletes
from sleeper.statestore.reading.delete_queries import Delete

starts, lengths = st.integers(0, 12), st.integers(1, 5)
ranges = st.builds(
    lambda low, length: Range(low, None if length is None else low + length),
    starts,
    st.none() | lengths,
)


@settings(deadline=None)
@given(st.integers(1, 2), st.integers(1, 3), st.data())
def test_deletes_that_overlap_a_region_are_found_in_order(
    fields: int, layers_max: int, data: st.DataObject
) -> None:
    regions = st.tuples(*[ranges] * fields).map(Region)
    sample = data.draw(st.lists(regions, max_size=12))
    deletes = [Delete(number, region) for number, region in enumerate(sample)]
    with mock.patch.object(newest_versions, "_LAYERS_MAX", layers_max):
        known = CachedDeletes(deletes)
    assert len(known) == len(deletes)
    for region in data.draw(st.lists(regions, min_size=1, max_size=5)):
        expected = [each for each in deletes if each.region.overlaps(region)]
        assert known.overlapping(region) == expected


def test_deletes_of_keys_are_compared_only_near_the_key() -> None:
    """Also beside a delete that covers them all."""
    compared = []

    class WatchedRegion(Region):
        def overlaps(self, other: Region) -> bool:
            compared.append(self)
            return super().overlaps(other)

    keys = [WatchedRegion((Range(key, key + 1),)) for key in range(100)]
    everything = WatchedRegion((Range(0, None),))
    known = CachedDeletes([Delete(n, region) for n, region in enumerate([*keys, everything])])
    assert len(known.overlapping(Region((Range(50, 51),)))) == 2
    assert len(compared) == 2
