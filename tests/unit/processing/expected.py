"""Filters and aggregations in plain Python, row by row, as the reference for the engine."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sleeper.processing.model import AgeOff, AggregationOp, Processing
from sleeper.schema.model import FieldType, MapType, PrimitiveType, Schema

Row = tuple[Any, ...]

_BITS = {PrimitiveType.INT: 32, PrimitiveType.LONG: 64}


def expected_rows(
    rows: Iterable[Row], schema: Schema, processing: Processing, now_ms: int
) -> list[Row]:
    """In key order."""
    keys = len(schema.keys)
    remaining = [
        r for r in rows if all(_is_young(r, schema, f, now_ms) for f in processing.age_offs)
    ]
    if not processing.aggregations:
        return sorted((comparable(r) for r in remaining), key=repr)
    ops = {a.field: a.op for a in processing.aggregations}
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in remaining:
        groups[row[:keys]].append(row)
    results = []
    for key, members in sorted(groups.items()):
        values = [
            _aggregated([m[keys + i] for m in members], ops[field.name], field.type)
            for i, field in enumerate(schema.values)
        ]
        results.append((*key, *values))
    return [comparable(row) for row in results]


def comparable(row: Sequence[Any]) -> Row:
    """NaN equals itself, -0.0 does not equal 0.0, and a map shows the order of its keys."""
    return tuple(repr(v) if isinstance(v, float) else _listed(v) for v in row)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_young(row: Row, schema: Schema, age_off: AgeOff, now_ms: int) -> bool:
    place = [f.name for f in schema.fields].index(age_off.field)
    time = row[place]
    if isinstance(time, datetime):
        micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
        return micros > (now_ms - age_off.age_ms) * 1000
    return time is None or time > now_ms - age_off.age_ms


_MICROSECOND = datetime.resolution


def _aggregated(values: list[Any], op: AggregationOp, kind: FieldType) -> Any:
    present = [v for v in values if v is not None]
    if not present:
        return None
    if isinstance(kind, MapType):
        by_key: dict[Any, list[Any]] = defaultdict(list)
        for entries in present:
            for key, value in entries:
                by_key[key].append(value)
        aggregate = _OF_EACH[op.value.removeprefix("map_")]
        return [(key, aggregate(by_key[key], kind.value)) for key in sorted(by_key)]
    return _OF_EACH[op.value](present, kind)


def _sum(values: list[int], kind: Any) -> int:
    half = 1 << (_BITS[kind] - 1)
    return (sum(values) + half) % (2 * half) - half


def _min(values: list[Any], _: Any) -> Any:
    return min(map(_plain_zero, values), key=_with_nan_last)


def _max(values: list[Any], _: Any) -> Any:
    return max(map(_plain_zero, values), key=_with_nan_last)


def _plain_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _with_nan_last(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


_OF_EACH: dict[str, Callable[[list[Any], Any], Any]] = {"sum": _sum, "min": _min, "max": _max}
