"""Filters, aggregations and iterator calls, and their validation against a schema."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import (
    INT_RANGES,
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)


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

    name: ClassVar[str] = "ageOff"
    field: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class JsonContains:
    """A filter of queries that keeps rows whose document contains the value of a JSON text.

    PostgreSQL's `document @> value` has this meaning. A row without a document is removed.
    """

    name: ClassVar[str] = "jsonContains"
    field: str
    json: str


Filter = AgeOff | JsonContains


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

    filters: tuple[Filter, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()
    iterator: IteratorCall | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether every row comes out as it went in."""
        return not self.filters and not self.aggregations and self.iterator is None

    @property
    def age_offs(self) -> tuple[AgeOff, ...]:
        """The filters by age. Those of a table have no others."""
        return tuple(each for each in self.filters if isinstance(each, AgeOff))

    @property
    def json_filters(self) -> tuple[JsonContains, ...]:
        """The filters by documents."""
        return tuple(each for each in self.filters if isinstance(each, JsonContains))


NO_PROCESSING = Processing()


_TIMES = (PrimitiveType.LONG, PrimitiveType.TIMESTAMP)
_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
# Each is a step of the engine's plan, and thousands of them overflow the stack.
_FILTERS_MAX = 100


def check_processing(processing: Processing, schema: Schema) -> None:
    """Raises InvalidRequestError if a filter, aggregation or iterator does not fit the schema."""
    if len(processing.filters) > _FILTERS_MAX:
        raise InvalidRequestError(
            f"there are {len(processing.filters):,} filters (expected at most {_FILTERS_MAX})"
        )
    for each in processing.filters:
        _check_filter(each, schema, bool(processing.aggregations))
    for aggregation in processing.aggregations:
        _check_aggregation(aggregation, schema)
    if processing.aggregations:
        _check_each_value_once(processing.aggregations, schema)


def check_table_processing(processing: Processing, schema: Schema) -> None:
    """Checks the processing of a table, which each compaction applies again.

    A filter of a value field before an iterator is invalid: it would see ingested values or the
    output of the iterator, depending on earlier compactions.
    """
    if schema.latest is not None and processing.aggregations:
        raise InvalidRequestError(
            f"aggregations: {len(processing.aggregations)} in a table of the latest rows (expected "
            "none, or a table of all rows), because a newer row replaces those that it would be "
            "aggregated with"
        )
    check_table_filters(processing.filters)
    check_processing(processing, schema)
    for each in processing.filters if processing.iterator is not None else ():
        if schema.field(each.field) in schema.values:
            raise InvalidRequestError(
                f"ageOff({each.field}): a table with an iterator can filter by key fields only, "
                f"which are {_names(schema.keys)}; the iterator may change field {each.field!r}"
            )


def check_table_filters(filters: Iterable[Filter]) -> None:
    """Raises InvalidRequestError for a filter of queries, whose rows compactions would remove."""
    for each in filters:
        if not isinstance(each, AgeOff):
            raise InvalidRequestError(
                f"{each.name}({each.field}): a table cannot have this filter (expected it in a "
                "query), because compactions remove for good what a table's filters hide"
            )


def _check_filter(each: Filter, schema: Schema, is_aggregating: bool) -> None:
    field = schema.field(each.field)
    if isinstance(each, JsonContains):
        if field.type is not PrimitiveType.JSON:
            raise InvalidRequestError(
                f"jsonContains needs a JSONType: field {field.name!r} is {type_name(field.type)}"
            )
    elif field.type not in _TIMES:
        raise InvalidRequestError(
            f"ageOff needs a LongType of milliseconds since 1970, or a TimestampType: field "
            f"{field.name!r} is {type_name(field.type)}"
        )
    if is_aggregating and field in schema.values:
        raise InvalidRequestError(
            f"{each.name}({field.name}): a table that aggregates can filter by key fields only, "
            f"which are {_names(schema.keys)}; field {field.name!r} is aggregated"
        )


def _check_aggregation(aggregation: Aggregation, schema: Schema) -> None:
    field, op = schema.field(aggregation.field), aggregation.op
    if field in schema.keys:
        raise InvalidRequestError(
            f"{op.value}({field.name}): {field.name!r} is a key field; expected a value field, "
            "because rows with equal keys are aggregated"
        )
    expected = _expected_type(op, field.type)
    if expected is not None:
        raise InvalidRequestError(
            f"{op.value}({field.name}): the field is {type_name(field.type)}, expected {expected}"
        )


def _expected_type(op: AggregationOp, kind: FieldType) -> str | None:
    """Returns the types that the operation expects; None if the type is one of them."""
    if op is AggregationOp.SUM:
        if kind in _FLOATS or isinstance(kind, DecimalType):
            return (
                "IntType or LongType: a sum of others depends on the order of rows, or does not "
                "fit the type"
            )
        return None if kind in INT_RANGES else "IntType or LongType"
    if op in (AggregationOp.MIN, AggregationOp.MAX):
        is_ordered = not isinstance(kind, ListType | MapType) and kind is not PrimitiveType.JSON
        return None if is_ordered else "a type that has an order, no list, no map and no JSON"
    if isinstance(kind, MapType) and kind.value in INT_RANGES and kind.key not in _FLOATS:
        return None
    return "a MapType whose values are IntType or LongType, and whose keys are no floats"


def _check_each_value_once(aggregations: tuple[Aggregation, ...], schema: Schema) -> None:
    names = [a.field for a in aggregations]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequestError(f"field {name!r} is aggregated twice")
    left = [f for f in schema.values if f.name not in names]
    if left:
        raise InvalidRequestError(
            f"no aggregation for field {_names(left)} (expected one for every value field, because "
            "rows with equal keys are combined)"
        )


def _names(fields: Iterable[Field]) -> str:
    return ", ".join(repr(f.name) for f in fields)
