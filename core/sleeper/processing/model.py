"""Filters, aggregations and iterator calls."""

from dataclasses import dataclass
from enum import Enum


class AggregationOp(Enum):
    """An operation that combines the values of rows with equal keys. Nulls are ignored."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MAP_SUM = "map_sum"
    MAP_MIN = "map_min"
    MAP_MAX = "map_max"

    @property
    def is_of_maps(self) -> bool:
        """Whether it works on each key of a map by itself."""
        return self.value.startswith("map_")


@dataclass(frozen=True, slots=True)
class AgeOff:
    """A filter that removes rows whose time is `age_ms` or longer ago. A null time passes."""

    field: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An operation on one field of rows with equal row and sort keys."""

    op: AggregationOp
    field: str


@dataclass(frozen=True, slots=True)
class IteratorCall:
    """The registered name and the configuration text of an iterator."""

    name: str
    config: str = ""


@dataclass(frozen=True, slots=True)
class Processing:
    """Filters, then aggregations, then an iterator. A row must pass every filter."""

    filters: tuple[AgeOff, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()
    iterator: IteratorCall | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether every row comes out as it went in."""
        return not self.filters and not self.aggregations and self.iterator is None


NO_PROCESSING = Processing()
