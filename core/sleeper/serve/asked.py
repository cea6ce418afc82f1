"""Which rows the body of a query asks for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import key_value_from_json, make_range, region_or_none_from_json
from sleeper.partitions.region import Region, key_region, whole_region
from sleeper.processing.model import Processing
from sleeper.processing.text import iterator_call, parse_aggregations, parse_filters
from sleeper.query.request import Query
from sleeper.schema.model import KeyValue, Schema
from sleeper.serve.bodies import check_members, list_of, number_of, text_of

MEMBERS = (
    "keys",
    "ranges",
    "regions",
    "columns",
    "limit",
    "asOf",
    "filters",
    "aggregations",
    "iterator",
    "iteratorConfig",
)


def query_of_body(schema: Schema, raw: Mapping[str, Any]) -> Query:
    """The rows of all keys, ranges and regions together; the whole table if none is given.

    Bytes are base64, in keys and ranges strings are as they are; regions are as in messages.
    InvalidRequestError names the member that does not fit.
    """
    check_members(raw, MEMBERS)
    regions = (
        *_each(raw, "keys", lambda key: _region_of_key(schema, key)),
        *_each(raw, "ranges", lambda within: _region_of_range(schema, within)),
        *_each(raw, "regions", lambda region: region_or_none_from_json(schema, region)),
    )
    asked = any(raw.get(name) is not None for name in ("keys", "ranges", "regions"))
    columns = raw.get("columns")
    return Query(
        regions if asked else None,
        None if columns is None else tuple(_texts(raw, "columns")),
        number_of(raw, "limit", 0),
        number_of(raw, "asOf", 1),
        Processing(
            parse_filters(text_of(raw, "filters") or ""),
            parse_aggregations(text_of(raw, "aggregations") or ""),
            iterator_call(text_of(raw, "iterator"), text_of(raw, "iteratorConfig")),
        ),
    )


def _each(
    raw: Mapping[str, Any], name: str, region_of: Callable[[Any], Region | None]
) -> Iterable[Region]:
    for place, value in enumerate(list_of(raw, name)):
        try:
            region = region_of(value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'"{name}[{place}]": {error}') from error
        if region is not None:
            yield region


def _region_of_key(schema: Schema, key: Any) -> Region:
    values = key if isinstance(key, list) else [key]
    if len(values) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {key!r} has {len(values)} values: one per row key field is needed ({names})"
        )
    fields = zip(schema.row_keys, values, strict=True)
    return key_region(schema, [key_value_from_json(field, value) for field, value in fields])


def _region_of_range(schema: Schema, ends: Any) -> Region:
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidRequestError(f"range {ends!r} is not [min, max], null for an open end")
    field = schema.row_keys[0]
    low, high = (_optional(schema, end) for end in ends)
    return Region((make_range(field, low, high), *whole_region(schema).ranges[1:]))


def _optional(schema: Schema, end: Any) -> KeyValue | None:
    return None if end is None else key_value_from_json(schema.row_keys[0], end)


def _texts(raw: Mapping[str, Any], name: str) -> Sequence[str]:
    values = list_of(raw, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidRequestError(f'"{name}" must be a list of names')
    return values
