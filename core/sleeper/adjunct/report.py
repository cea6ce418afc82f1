"""Listings of stores, and the keys and values of a store as JSON lines."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.adjunct.versions.status import StoreStatus, seconds_since
from sleeper.clock import iso_time
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.json_text import json_lines, json_values
from sleeper.reports.output import Column, ColumnKind, Listing, Value, pluralize
from sleeper.reports.text_table import format_bytes

_LINES = 1_000


def list_stores(statuses: Sequence[StoreStatus], parent: str) -> Listing:
    """Lists the stores of a folder."""
    summary = f"{pluralize(len(statuses), 'store')} in {parent}"
    return Listing.describe("adjunct-stores", summary, _LIST_COLUMNS, statuses)


def describe_status(status: StoreStatus) -> Listing:
    """Describes one store: a row, which text output shows as lines."""
    summary = f"store {status.name} of {status.input or 'an unknown input'}: {_state(status)}"
    rows = (tuple(column.read(status) for column in _STATUS_COLUMNS),)
    return Listing("adjunct-store", summary, _STATUS_COLUMNS, rows, tuple(_draw(status)))


def pairs_as_json(store: str, layout: Layout, pairs: Iterable[tuple[Any, bytes]]) -> Iterator[str]:
    """Yields an object with `key` and `value` per pair, with values as docs/formats.md has them.

    The values are bytes of the store, so that those of JSON stand as they were written, the null of
    JSON is null, and a field of JSON without a value is absent. A key of several fields is a list.
    """
    rest = iter(pairs)
    while chunk := list(islice(rest, _LINES)):
        keys = _key_texts(layout.keys, [key for key, _ in chunk])
        values = _value_texts(store, layout, [value for _, value in chunk])
        for key, value in zip(keys, values, strict=True):
            yield f'{{"key":{key},"value":{value}}}'


def _key_texts(fields: Sequence[StoredField], keys: list[Any]) -> list[str]:
    rows = [(key,) for key in keys] if len(fields) == 1 else keys
    columns = [
        json_values(pa.array([row[index] for row in rows], arrow_type(each.type)))
        for index, each in enumerate(fields)
    ]
    if len(columns) == 1:
        texts: list[str] = columns[0].to_pylist()
        return texts
    joined = pc.binary_join_element_wise(*columns, ",").to_pylist()
    return [f"[{each}]" for each in joined]


def _value_texts(store: str, layout: Layout, contents: list[bytes]) -> list[str]:
    if layout.values is None:
        decode = ValueCodec(layout).decode
        values = map(decode, contents)
        return [json.dumps(each, default=_encode, ensure_ascii=False) for each in values]
    if not layout.values:
        return ["{}"] * len(contents)
    columns = ValueColumns(store, layout)
    lines: list[str] = json_lines(columns.decode(pa.array(contents, pa.large_binary()))).to_pylist()
    return lines


def _encode(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _state(status: StoreStatus) -> str:
    if status.building is not None and not status.is_serving:
        return "loading"
    if not status.is_serving:
        return "no complete version"
    if status.problem is not None and status.filled_by is not None:
        return "serving, not updated"
    return "serving" if status.filled_by is not None else "serving, not filled"


def _offset(status: StoreStatus) -> Value:
    return dict(status.offset)


def _age_seconds(status: StoreStatus) -> Value:
    return round(seconds_since(status.updated_ms), 3) if status.updated_ms else None


def _version(status: StoreStatus) -> Value:
    return status.version or _offset_text(status)


def _offset_text(status: StoreStatus) -> str:
    shown = [f"{name} {value}" for name, value in status.offset.items()]
    more = f" and {len(shown) - 4:,} more" if len(shown) > 4 else ""
    return ", ".join(shown[:4]) + more


def _draw(status: StoreStatus) -> Iterator[str]:
    yield f"  type          {status.type}"
    if status.partition is not None:
        yield f"  partition     {status.partition}"
    yield f"  filled by     {status.filled_by or 'no process'}"
    yield f"  version       {status.version or 'follows changes'}"
    yield f"  offset        {_offset_text(status) or 'none'}"
    yield f"  lag           {_describe_lag(status)}"
    yield f"  updated       {_describe_age(status)}"
    yield f"  bootstrapped  {'yes' if status.bootstrapped else 'no'}"
    history = "yes: data before its first position is missing"
    yield f"  incomplete    {history if status.incomplete else 'no'}"
    yield f"  size          {format_bytes(status.bytes)}"
    if status.building is not None:
        yield f"  building      {pluralize(status.building, 'key')} of the next version"
    if status.problem is not None:
        yield f"  problem       {status.problem}"


def _describe_lag(status: StoreStatus) -> str:
    if status.lag is None:
        return "unknown"
    # Without a lag, the newest may be the upkeep of a table, after the position of the store.
    newest = f", the newest is {status.newest}" if status.lag and status.newest else ""
    return f"{status.lag:,} behind{newest}"


def _describe_age(status: StoreStatus) -> str:
    if not status.updated_ms:
        return "never"
    return f"{iso_time(status.updated_ms)}, {seconds_since(status.updated_ms):,.0f} s ago"


_LIST_COLUMNS = (
    Column("name", "name"),
    Column("input", "input"),
    Column("partition", "partition"),
    Column("state", "state", value=_state),
    Column("filled_by", "filled by"),
    Column("version", "version", value=_version),
    Column("bytes", "size", ColumnKind.BYTES),
    Column("updated_ms", "updated", ColumnKind.TIME, value=lambda each: each.updated_ms or None),
    Column("problem", "problem"),
)
_STATUS_COLUMNS = (
    Column("name", "name"),
    Column("input", "input"),
    Column("type", "type"),
    Column("partition", "partition"),
    Column("state", "state", value=_state),
    Column("is_serving", "serving"),
    Column("filled_by", "filled by"),
    Column("version", "version"),
    Column("offset", "offset", value=_offset),
    Column("lag", "lag", ColumnKind.COUNT),
    Column("newest", "newest"),
    Column("bootstrapped", "bootstrapped"),
    Column("incomplete", "incomplete"),
    Column("bytes", "size", ColumnKind.BYTES),
    Column("building", "building", ColumnKind.COUNT),
    Column("updated_ms", "updated", ColumnKind.TIME, value=lambda each: each.updated_ms or None),
    Column("age_seconds", "age", ColumnKind.SECONDS, value=_age_seconds),
    Column("reported_ms", "reported", ColumnKind.TIME),
    Column("problem", "problem"),
)
