"""Keys, ranges and regions in JSON that select rows (docs/formats.md, "Delete messages")."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.json_members import list_member
from sleeper.partitions.json import (
    first_field_region,
    key_value_from_json,
    region_or_none_from_json,
)
from sleeper.partitions.region import Region, key_region
from sleeper.schema.model import Schema

SELECTION_MEMBERS = ("keys", "ranges", "regions")


def parse_selection(schema: Schema, raw: Mapping[str, Any]) -> tuple[Region, ...] | None:
    """Returns the regions of all keys, ranges and regions of a body; `None` if it has no such list.

    Keys and ranges have plain strings and base64 bytes. Raises `InvalidRequestError` with the name
    of the member that is wrong.
    """
    regions = (
        *_selected(schema, raw, "keys", _key_region),
        *_selected(schema, raw, "ranges", _range_region),
        *_selected(schema, raw, "regions", region_or_none_from_json),
    )
    return None if all(raw.get(name) is None for name in SELECTION_MEMBERS) else regions


def _selected(
    schema: Schema,
    raw: Mapping[str, Any],
    name: str,
    parse: Callable[[Schema, Any], Region | None],
) -> Iterator[Region]:
    for index, value in enumerate(list_member(raw, name)):
        try:
            region = parse(schema, value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'"{name}[{index}]": {error}') from error
        if region is not None:
            yield region


def _key_region(schema: Schema, key: Any) -> Region:
    values = key if isinstance(key, list) else [key]
    if len(values) != len(schema.row_keys):
        names = ", ".join(f.name for f in schema.row_keys)
        raise InvalidRequestError(
            f"key {key!r} has {len(values)} values (expected one per row key field: {names})"
        )
    fields = zip(schema.row_keys, values, strict=True)
    return key_region(schema, [key_value_from_json(field, value) for field, value in fields])


def _range_region(schema: Schema, ends: Any) -> Region:
    if not isinstance(ends, list) or len(ends) != 2:
        raise InvalidRequestError(f"invalid range {ends!r} (expected [min, max], null if open)")
    field = schema.row_keys[0]
    low, high = (None if end is None else key_value_from_json(field, end) for end in ends)
    return first_field_region(schema, low, high)
