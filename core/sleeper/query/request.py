"""Queries by key: the rows, columns, limit and version to read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import first_field_region, region_from_json
from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.region import Region, key_of_region, key_region
from sleeper.processing.model import NO_PROCESSING, Processing, check_processing
from sleeper.schema.key_values import check_key_value, check_sorted_value
from sleeper.schema.model import Field, KeyValue, Schema, precedes
from sleeper.statestore.version import Version

_LIMIT_MAX = 2**63 - 1
_LOOKUP_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Query:
    """The rows in any of the regions, each once.

    `regions` is `None` for the whole table; none of them select no rows. `columns` are field
    names in output order, `None` for all. `version` is `None` for the newest. `processing` is
    applied after the table's own, before columns and limit. `now_ms` is the current time for
    filters; `None` is the start of the query, or the version's time if a version is given. `raw`
    omits the table's own processing.
    """

    regions: Sequence[Region] | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    version: Version | None = None
    processing: Processing = NO_PROCESSING
    now_ms: int | None = None
    raw: bool = False


def check_query(query: Query, schema: Schema) -> None:
    """Raises `InvalidRequestError` if the query does not fit the schema."""
    if not _are_checked(query.regions, schema):
        for region in query.regions or ():
            _check_region(region, schema)
    for name in query.columns or ():
        schema.field(name)
    if query.columns is not None:
        if not query.columns:
            raise InvalidRequestError("no columns in the query (expected at least one)")
        if len(set(query.columns)) < len(query.columns):
            raise InvalidRequestError(f"duplicate column in the query: {', '.join(query.columns)}")
    check_processing(query.processing, schema)
    if query.limit is not None and not 0 <= query.limit <= _LIMIT_MAX:
        raise InvalidRequestError(f"limit {query.limit} (expected 0 to {_LIMIT_MAX})")


def make_key_regions(schema: Schema, keys: Iterable[Sequence[object]]) -> Sequence[Region]:
    """Returns a region per row key. A key is a sequence with a value per row key field.

    Keys of one field are in ascending order, each once.
    """
    return regions_of_keys(schema, (_checked_key(schema, key) for key in keys))


def regions_of_keys(schema: Schema, checked: Iterable[Sequence[KeyValue]]) -> Sequence[Region]:
    """Returns `make_key_regions` of keys in the form that sorts."""
    if len(schema.row_keys) == 1:
        return KeyRegions.from_values(schema.row_keys[0], (value for (value,) in checked))
    return tuple(key_region(schema, key) for key in checked)


def make_range_region(schema: Schema, minimum: object | None, maximum: object | None) -> Region:
    """Returns the keys whose first field is in [minimum, maximum). `None` is an open end."""
    field = schema.row_keys[0]
    low = None if minimum is None else check_key_value(field, minimum)
    high = None if maximum is None else check_key_value(field, maximum)
    return first_field_region(schema, low, high)


def select_regions(
    schema: Schema,
    keys: Iterable[Sequence[object]],
    ranges: Iterable[tuple[object | None, object | None]],
    regions: Iterable[Mapping[str, Any]],
) -> Sequence[Region]:
    """Returns the regions of keys, of ranges of the first field, and of regions as objects.

    Strings in an object are plain text, unless it says that they are encoded.
    """
    plain = {"stringsBase64Encoded": False}
    of_keys = make_key_regions(schema, keys)
    others = (
        *(make_range_region(schema, *_check_ends(ends)) for ends in ranges),
        *(region_from_json(schema, {**plain, **_check_mapping(each)}) for each in regions),
    )
    return (*of_keys, *others) if others else of_keys


def _check_ends(ends: object) -> tuple[object, object]:
    if isinstance(ends, str | bytes) or not isinstance(ends, Sequence) or len(ends) != 2:
        raise InvalidRequestError(
            f"range {ends!r} is not a pair (expected minimum and maximum, or None for an end)"
        )
    return ends[0], ends[1]


def _check_mapping(region: object) -> Mapping[str, Any]:
    if not isinstance(region, Mapping):
        raise InvalidRequestError(
            f"region {region!r} is not a mapping (expected ranges by the names of row key fields)"
        )
    return region


def select_columns(schema: Schema, value_fields: Iterable[str]) -> tuple[str, ...]:
    """Returns the key fields and the requested value fields, in schema order.

    docs/formats.md, "Query messages": `requestedValueFields`.
    """
    requested = set(value_fields)
    values = {f.name for f in schema.values}
    for name in requested - values:
        raise InvalidRequestError(
            f"no value field {name!r} in the schema, which has: {', '.join(sorted(values))}"
        )
    return tuple(f.name for f in schema.fields if f in schema.keys or f.name in requested)


def _checked_key(schema: Schema, key: Sequence[object]) -> tuple[KeyValue, ...]:
    if isinstance(key, str | bytes) or not isinstance(key, Sequence):
        raise InvalidRequestError(
            f"key {key!r} is not a sequence with a value for each row key field"
        )
    if len(key) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {key!r} has {len(key)} values (expected one per row key field: {names})"
        )
    return tuple(check_key_value(f, v) for f, v in zip(schema.row_keys, key, strict=True))


def _are_checked(regions: Sequence[Region] | None, schema: Schema) -> bool:
    """Returns whether the regions were made for keys of the schema."""
    return isinstance(regions, KeyRegions) and (regions.field,) == schema.row_keys


def _check_region(region: Region, schema: Schema) -> None:
    if len(region.ranges) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"a region has {len(region.ranges)} ranges (expected one per row key field: {names})"
        )
    for field, within in zip(schema.row_keys, region.ranges, strict=True):
        check_sorted_value(field, within.min)
        if within.max is not None:
            check_sorted_value(field, within.max)
            _check_order(field, within.min, within.max)


def _check_order(field: Field, low: KeyValue, high: KeyValue) -> None:
    if not precedes(low, high):
        raise InvalidRequestError(
            f"range of field {field.name!r} is empty: min {low!r}, max {high!r}"
        )


def has_few_keys(query: Query, schema: Schema) -> bool:
    """Returns whether the query is of so few keys that pages are read, not row groups."""
    regions = query.regions
    if regions is None or len(regions) > _LOOKUP_KEYS_MAX:
        return False
    return all(key_of_region(schema, region) is not None for region in regions)
