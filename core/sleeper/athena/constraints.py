"""What a request asks of the rows: value sets by column, and a limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sleeper.athena.members import member, number_member
from sleeper.athena.value_sets import ValueSet, value_set_from_json

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
