"""Parsing of the arguments of `sleeper query`."""

import csv
import json
from collections.abc import Iterable, Sequence

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import key_value_from_json, region_from_json
from sleeper.partitions.region import Region, key_region
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.request import Query, make_range_region
from sleeper.schema.model import INT_RANGES, Field, KeyValue, Schema


def parse_key(schema: Schema, text: str) -> Region:
    """Returns the region of one key: CSV with a value per row key field, byte arrays as base64."""
    values = _parse_csv(text, ",")
    if len(values) != len(schema.row_keys):
        names = ",".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {text!r} has {len(values)} values (expected one per row key field: {names})"
        )
    return key_region(
        schema, [_parse_value(f, v) for f, v in zip(schema.row_keys, values, strict=True)]
    )


def parse_range(schema: Schema, text: str) -> Region:
    """Returns the region of `MIN:MAX` in the first row key field; an empty bound is open.

    A value that contains a colon is quoted as in CSV: `"a:b":c`.
    """
    bounds = _parse_csv(text, ":")
    if len(bounds) != 2:
        raise InvalidRequestError(
            f"invalid range: {text!r} (expected MIN:MAX; quote a value that contains a colon)"
        )
    field = schema.row_keys[0]
    low, high = (_parse_value(field, bound) if bound else None for bound in bounds)
    return make_range_region(schema, low, high)


def _parse_csv(text: str, separator: str) -> list[str]:
    try:
        (cells,) = csv.reader([text], delimiter=separator, strict=True) if text else [[""]]
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting: {text!r}: {error}") from error
    return cells


def _parse_value(field: Field, text: str) -> KeyValue:
    if field.type not in INT_RANGES:
        return key_value_from_json(field, text)
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"field {field.name!r}: {text!r} is not a whole number") from None
    return key_value_from_json(field, number)


def build_query(
    schema: Schema,
    keys: Sequence[str] = (),
    ranges: Sequence[str] = (),
    regions: Sequence[str] = (),
    columns: str | None = None,
    limit: int | None = None,
    version: int | None = None,
    filters: str = "",
    aggregations: str = "",
    iterator: IteratorCall | None = None,
) -> Query:
    """Returns a query of all keys, ranges and regions, or of the whole table if none is given.

    InvalidRequestError names the field and the invalid text.
    """
    all_regions = (
        *(parse_key(schema, text) for text in keys),
        *(parse_range(schema, text) for text in ranges),
        *_parse_regions(schema, regions),
    )
    processing = Processing(parse_filters(filters), parse_aggregations(aggregations), iterator)
    return Query(all_regions or None, _parse_columns(columns), limit, version, processing)


def _parse_regions(schema: Schema, texts: Iterable[str]) -> Iterable[Region]:
    for text in texts:
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise InvalidRequestError(f"region {text!r} is not JSON: {error}") from error
        yield region_from_json(schema, raw)


def _parse_columns(columns: str | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    try:
        (names,) = csv.reader([columns], strict=True)
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting of columns: {columns!r}") from error
    return tuple(name.strip() for name in names)
