"""Ranges and regions, compared with plain Python comparison."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import region_from_json, region_to_json
from sleeper.partitions.partition import split_region, tree_from_split_points
from sleeper.partitions.region import Range, Region, key_region, whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema((Field("k", PrimitiveType.STRING), Field("n", PrimitiveType.INT)))
small = st.integers(-5, 5)
ranges = st.builds(lambda a, b: Range(min(a, b), None if a == b else max(a, b)), small, small)


@given(ranges, ranges)
def test_overlap_and_intersection_agree_with_the_values_that_both_hold(a: Range, b: Range) -> None:
    both = {v for v in range(-6, 7) if a.contains(v) and b.contains(v)}
    assert a.overlaps(b) == bool(both)
    joint = a.intersect(b)
    assert {v for v in range(-6, 7) if joint and joint.contains(v)} == both


@given(ranges, small, small)
def test_bounds_agree_with_values(a: Range, x: int, y: int) -> None:
    low, high = min(x, y), max(x, y)
    contained = [a.contains(v) for v in range(low, high + 1)]
    assert a.overlaps_values(low, high) == any(contained)
    assert a.contains_values(low, high) == all(contained)


@given(st.text(max_size=3), st.text(max_size=3))
def test_the_region_of_a_key_holds_that_key_alone(key: str, other: str) -> None:
    region = key_region(SCHEMA, (key, 7))
    assert region.contains((key, 7))
    assert region.contains((other, 7)) == (other == key)
    assert not region.contains((key, 8))


def test_the_largest_int_has_a_region_without_upper_end() -> None:
    assert key_region(SCHEMA, ("a", 2**31 - 1)).ranges[1] == Range(2**31 - 1, None)


def test_a_region_reads_encoded_strings_and_inclusive_ends() -> None:
    raw = {
        "k": {
            "min": base64.b64encode(b"a").decode(),
            "max": base64.b64encode("é".encode()).decode(),
            "maxInclusive": True,
        }
    }
    region = region_from_json(SCHEMA, raw)
    assert region.ranges[0] == Range("a", "é\0")
    assert region.ranges[1] == whole_region(SCHEMA).ranges[1]
    assert region_from_json(SCHEMA, region_to_json(SCHEMA, region)) == region


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"x": {}}, "region has 'x'"),
        ({"n": {"min": 5, "max": 5}}, "is empty"),
        ({"n": {"min": 6, "max": 5}}, "is empty"),
        ({"n": {"min": 2**31}}, "does not fit"),
        ({"n": {"min": "five"}}, "does not fit"),
        ({"n": {"mn": 5}}, "unknown member 'mn'"),
        ({"n": {"min": 2**31 - 1, "minInclusive": False}}, "is empty"),
        ({"k": {"min": "%%%"}}, "not base64"),
        ({"k": {"minInclusive": "yes"}}, '"minInclusive" is .yes. .expected true or false'),
        ([], "JSON object"),
    ],
)
def test_a_wrong_region_is_refused_with_its_reason(raw: object, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        region_from_json(SCHEMA, raw)


@given(st.sets(st.text(min_size=1, max_size=4), max_size=20), st.text(max_size=4))
def test_the_leaves_of_a_tree_hold_every_key_exactly_once(points: set[str], key: str) -> None:
    partitions = tree_from_split_points(SCHEMA, sorted(points))
    leaves = [p for p in partitions if p.is_leaf]
    assert len(leaves) == len(points) + 1
    assert sum(p.region.contains((key, 0)) for p in leaves) == 1
    seen = {None}
    for p in partitions:
        assert p.parent_id in seen
        seen.add(p.id)


def test_split_points_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="ascending order"):
        tree_from_split_points(SCHEMA, ["b", "a"])
    with pytest.raises(InvalidRequestError, match="smallest value"):
        tree_from_split_points(SCHEMA, [""])


def test_a_region_is_cut_in_two_at_a_point_inside_it() -> None:
    region = whole_region(SCHEMA)
    below, above = split_region(region, 1, 0)
    assert below.contains(("x", -1))
    assert not below.contains(("x", 0))
    assert above.contains(("x", 0))
    assert Region(region.ranges) == region
    with pytest.raises(InvalidRequestError, match="does not divide"):
        split_region(below, 1, 5)
