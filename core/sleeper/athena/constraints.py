"""The constraints of a request: value sets by column, and a limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from sleeper.athena.encoding import block_from_json, member, number_member
from sleeper.errors import InvalidRequestError

_WHAT = "the request's constraints"
# Members that filter or order rows in other ways. The connector does not offer these
# capabilities, so Athena need not send them.
_UNSUPPORTED = ("expression", "orderByClause", "queryPlan")


class Bound(Enum):
    """The position of a marker relative to its value."""

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
    """The values between two markers."""

    low: Marker
    high: Marker

    @property
    def includes_low(self) -> bool:
        """Whether the range includes the lower marker's value."""
        return self.low.bound in (Bound.BELOW, Bound.EXACTLY)

    @property
    def includes_high(self) -> bool:
        """Whether the range includes the upper marker's value."""
        return self.high.bound in (Bound.EXACTLY, Bound.ABOVE)

    @property
    def single(self) -> pa.Scalar | None:
        """The value of a range that has only one."""
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
    """All values but null, or none; with or without null."""

    all: bool
    null_allowed: bool


ValueSet = SortedRangeSet | EquatableValueSet | AllOrNoneValueSet


@dataclass(frozen=True, slots=True)
class Constraints:
    """Requires the columns, by Athena's names, to be in their value sets.

    `limit` is a sufficient number of such rows of each split, None for all of them. It is None
    also for a request with constraints of other kinds, which may need more rows.
    """

    summary: Mapping[str, ValueSet]
    limit: int | None = None


def constraints_from_json(raw: Any) -> Constraints:
    """Parses constraints. InvalidRequestError names the invalid member."""
    summary = {
        column: value_set_from_json(column, each)
        for column, each in member(raw, "summary", dict, _WHAT).items()
    }
    limit = number_member(raw, "limit", _WHAT) if raw.get("limit") is not None else -1
    if limit < 0 or any(raw.get(name) for name in _UNSUPPORTED):
        return Constraints(summary)
    return Constraints(summary, limit)


def value_set_from_json(column: str, raw: Any) -> ValueSet:
    """Parses a value set. InvalidRequestError names the column."""
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
            null_allowed = member(raw, "nullAllowed", bool, what)
            # The SDK writes `all && nullAllowed`, so `all` of NOT NULL is false. It writes the
            # same for no values, which no query asks for.
            return AllOrNoneValueSet(
                member(raw, "all", bool, what) or not null_allowed, null_allowed
            )
        case other:
            raise InvalidRequestError(f"{what} is of an unknown kind: {other!r}")


def _range(raw: Any, what: str) -> ValueRange:
    low, high = (_marker(member(raw, name, dict, what), what) for name in ("low", "high"))
    return ValueRange(low, high)


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
        raise InvalidRequestError(f"{what} has a marker of {len(values)} values (expected one)")
    return Marker(values[0], bound)


def _column(raw: dict[str, Any], what: str) -> pa.Array:
    block = block_from_json(member(raw, "valueBlock", dict, what), what)
    if block.num_columns != 1:
        raise InvalidRequestError(f"{what} has values of {block.num_columns} columns (expected 1)")
    return block.column(0)
