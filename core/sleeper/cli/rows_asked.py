"""Which rows and columns `sleeper query` asks for, from its arguments."""

import csv
import json
from collections.abc import Iterable, Sequence

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import region_from_json
from sleeper.partitions.region import Region
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.arguments import region_of_key_text, region_of_range_text
from sleeper.query.request import Query
from sleeper.schema.model import Schema


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
        raise InvalidRequestError(f"columns {columns!r} are not quoted as CSV is") from error
    return tuple(name.strip() for name in names)
