"""Constraints on row key fields as key regions, so that other leaves and pages stay unread."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from sleeper.athena.constraints import (
    AllOrNoneValueSet,
    EquatableValueSet,
    ValueRange,
    ValueSet,
)
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import (
    Field,
    KeyValue,
    Schema,
    check_key_value,
    next_key_value,
    precedes,
    smallest_key_value,
)

_REGIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KeyRegions:
    """Every row that meets the constraints lies in one of the regions, which do not overlap.

    Of the `settled` fields no row of the regions fails its constraint.
    """

    regions: tuple[Region, ...]
    settled: frozenset[str]


def key_regions(schema: Schema, summary: Mapping[str, ValueSet], within: Region) -> KeyRegions:
    """The regions of the constraints (by field name) inside another region."""
    settled = set()
    by_field = []
    for field, outer in zip(schema.row_keys, within.ranges, strict=True):
        ranges = _ranges(field, summary[field.name]) if field.name in summary else None
        if ranges is not None:
            settled.add(field.name)
        met = (outer.intersect(each) for each in ranges) if ranges is not None else (outer,)
        by_field.append([each for each in met if each is not None])
    for place in reversed(range(len(by_field))):
        if prod(map(len, by_field)) > _REGIONS_MAX:
            by_field[place] = [Range(by_field[place][0].min, by_field[place][-1].max)]
            settled.discard(schema.row_keys[place].name)
    regions = (Region(ranges) for ranges in itertools.product(*by_field))
    return KeyRegions(tuple(regions), frozenset(settled))


def _ranges(field: Field, values: ValueSet) -> list[Range] | None:
    """Ascending ranges of the values; None if the set is none of ranges, or of another type."""
    match values:
        case AllOrNoneValueSet(is_all):
            return None if is_all else []
        case EquatableValueSet(listed, is_white_list):
            points = _key_values(field, listed.to_pylist())
            if points is None or not is_white_list:
                return None
            return [Range(p, next_key_value(field, p)) for p in sorted(set(points))]
        case _:
            found = [_range(field, each) for each in values.ranges]
            if any(each is None for each in found):
                return None
            return [within for each in found for within in each or ()]


def _range(field: Field, each: ValueRange) -> list[Range] | None:
    """Half-open, or no range at all if no value is in it; None if it is of another type."""
    ends = [m.value.as_py() for m in (each.low, each.high) if m.value is not None]
    if _key_values(field, ends) is None:
        return None
    low: KeyValue | None = smallest_key_value(field)
    high: KeyValue | None = None
    if each.low.value is not None:
        value = each.low.value.as_py()
        low = value if each.includes_low else next_key_value(field, value)
    if each.high.value is not None:
        value = each.high.value.as_py()
        high = next_key_value(field, value) if each.includes_high else value
    if low is None or (high is not None and not precedes(low, high)):
        return []
    return [Range(low, high)]


def _key_values(field: Field, values: Sequence[Any]) -> list[KeyValue] | None:
    """The values, if all can be of the field."""
    try:
        return [check_key_value(field, value) for value in values]
    except InvalidRequestError:
        return None
