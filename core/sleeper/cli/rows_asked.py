"""Which rows and columns `sleeper query` asks for, from its arguments."""

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


def region_of_key_text(schema: Schema, text: str) -> Region:
    """The region of one key: a value per row key field, with commas and quotes as in CSV.

    Bytes are base64.
    """
    values = _cells(text, ",")
    if len(values) != len(schema.row_keys):
        names = ",".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {text!r} has {len(values)} values (expected one per row key field: {names})"
        )
    return key_region(schema, [_value(f, v) for f, v in zip(schema.row_keys, values, strict=True)])


def region_of_range_text(schema: Schema, text: str) -> Region:
    """The region of `MIN:MAX` over the first row key field; an empty side is open.

    A value with a colon is quoted: `"a:b":c`.
    """
    ends = _cells(text, ":")
    if len(ends) != 2:
        raise InvalidRequestError(
            f"invalid range: {text!r} (expected MIN:MAX; quote a value that contains a colon)"
        )
    field = schema.row_keys[0]
    low, high = (_value(field, end) if end else None for end in ends)
    return make_range_region(schema, low, high)


def _cells(text: str, separator: str) -> list[str]:
    try:
        (cells,) = csv.reader([text], delimiter=separator, strict=True) if text else [[""]]
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting: {text!r}: {error}") from error
    return cells


def _value(field: Field, text: str) -> KeyValue:
    if field.type not in INT_RANGES:
        return key_value_from_json(field, text)
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"field {field.name!r}: {text!r} is not a whole number") from None
    return key_value_from_json(field, number)


def query_asked(
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
    """The rows of all keys, ranges and regions together; the whole table if there are none.

    InvalidRequestError names the field and the text that does not fit it.
    """
    asked = (
        *(region_of_key_text(schema, text) for text in keys),
        *(region_of_range_text(schema, text) for text in ranges),
        *_regions_of_json(schema, regions),
    )
    processing = Processing(parse_filters(filters), parse_aggregations(aggregations), iterator)
    return Query(asked or None, _names(columns), limit, version, processing)


def _regions_of_json(schema: Schema, texts: Iterable[str]) -> Iterable[Region]:
    for text in texts:
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise InvalidRequestError(f"region {text!r} is not JSON: {error}") from error
        yield region_from_json(schema, raw)


def _names(columns: str | None) -> tuple[str, ...] | None:
    """Names with commas between them; one with a comma in it is quoted as in CSV."""
    if columns is None:
        return None
    try:
        (names,) = csv.reader([columns], strict=True)
    except (csv.Error, ValueError) as error:
        raise InvalidRequestError(f"invalid CSV quoting of columns: {columns!r}") from error
    return tuple(name.strip() for name in names)
