"""What a request asks of the rows: value sets by column, and a limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from sleeper.athena.blocks import block_from_json
from sleeper.athena.members import member, number_member
from sleeper.errors import InvalidRequestError


class Bound(Enum):
    """Where a marker stands as to its value."""

    BELOW = "BELOW"
    EXACTLY = "EXACTLY"
    ABOVE = "ABOVE"


@dataclass(frozen=True, slots=True)
class Marker:
    """One end of a range; `value` None is unbounded."""

    value: pa.Scalar | None
    bound: Bound


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values from one marker to another."""

    low: Marker
    high: Marker

    @property
    def includes_low(self) -> bool:
        """Whether the lower marker's own value is in the range."""
        return self.low.bound in (Bound.BELOW, Bound.EXACTLY)

    @property
    def includes_high(self) -> bool:
        """Whether the upper marker's own value is in the range."""
        return self.high.bound in (Bound.EXACTLY, Bound.ABOVE)

    @property
    def single(self) -> pa.Scalar | None:
        """The value, if it is the only one in the range."""
        low, high = self.low.value, self.high.value
        if low is None or high is None or not (self.includes_low and self.includes_high):
            return None
        return low if low == high else None


@dataclass(frozen=True, slots=True)
class SortedRangeSet:
    """Values in any of the ranges, which ascend and do not overlap."""

    ranges: tuple[ValueRange, ...]
    null_allowed: bool


@dataclass(frozen=True, slots=True)
class EquatableValueSet:
    """The listed values, or, if `is_white_list` is false, all others."""

    values: pa.Array
    is_white_list: bool
    null_allowed: bool


@dataclass(frozen=True, slots=True)
class AllOrNoneValueSet:
    """Every value but null, or none; and null or not."""

    all: bool
    null_allowed: bool


ValueSet = SortedRangeSet | EquatableValueSet | AllOrNoneValueSet


def value_set_from_json(column: str, raw: Any) -> ValueSet:
    """InvalidRequestError names the column if it is no value set."""
    what = f"the constraint of column {column!r}"
    match member(raw, "@type", str, what):
        case "SortedRangeSet":
            ranges = tuple(_range(each, what) for each in member(raw, "ranges", list, what))
            return SortedRangeSet(ranges, member(raw, "nullAllowed", bool, what))
        case "EquatableValueSet":
            values = _column(raw, what)
            # Version 1 of the protocol had no such member.
            null_allowed = raw.get("nullAllowed", False) is True
            return EquatableValueSet(values, member(raw, "whiteList", bool, what), null_allowed)
        case "AllOrNoneValueSet":
            return AllOrNoneValueSet(
                member(raw, "all", bool, what), member(raw, "nullAllowed", bool, what)
            )
        case other:
            raise InvalidRequestError(f"{what} is of a kind that is not known: {other!r}")


def _range(raw: Any, what: str) -> ValueRange:
    return ValueRange(
        _marker(member(raw, "low", dict, what), what),
        _marker(member(raw, "high", dict, what), what),
    )


def _marker(raw: dict[str, Any], what: str) -> Marker:
    name = member(raw, "bound", str, what)
    try:
        bound = Bound(name)
    except ValueError:
        raise InvalidRequestError(f"{what} has a marker with bound {name!r}") from None
    if member(raw, "nullValue", bool, what):
        return Marker(None, bound)
    values = _column(raw, what)
    if len(values) != 1 or not values[0].is_valid:
        raise InvalidRequestError(f"{what} has a marker of {len(values)} values, not one")
    return Marker(values[0], bound)


def _column(raw: dict[str, Any], what: str) -> pa.Array:
    block = block_from_json(member(raw, "valueBlock", dict, what), what)
    if block.num_columns != 1:
        raise InvalidRequestError(f"{what} has values of {block.num_columns} columns, not of one")
    return block.column(0)


_WHAT = "the request's constraints"
# What stands there if rows may be left out, or may be wanted in another order than ours, by
# what is not looked at here. The connector does not offer to, so Athena does not send it.
_BESIDE_THE_SUMMARY = ("expression", "orderByClause")


@dataclass(frozen=True, slots=True)
class Constraints:
    """Rows whose columns are all in their value sets, by column name as Athena has it.

    `limit` is how many such rows of each split are enough, None for all. Where a request
    has more than value sets to say, more rows may be needed, so then it is None too.
    """

    summary: Mapping[str, ValueSet]
    limit: int | None = None


def constraints_from_json(raw: Any) -> Constraints:
    """InvalidRequestError says what cannot be read."""
    summary = {
        column: value_set_from_json(column, each)
        for column, each in member(raw, "summary", dict, _WHAT).items()
    }
    limit = number_member(raw, "limit", _WHAT) if raw.get("limit") is not None else -1
    if limit < 0 or any(raw.get(name) for name in _BESIDE_THE_SUMMARY):
        return Constraints(summary)
    return Constraints(summary, limit)
