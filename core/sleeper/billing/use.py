"""What AWS bills of the parts of an instance."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MonthlyUse:
    """What AWS bills of a part in a month. `amounts` are by the names of their prices.

    `detail` says what was counted. `is_measured` if AWS counted it, otherwise it is calculated from
    the deployment. `table` is the name of the table that it is of, if it is of one.
    """

    part: str
    detail: str
    amounts: Mapping[str, float]
    is_measured: bool
    table: str | None = None
