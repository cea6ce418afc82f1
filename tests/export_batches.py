"""Batches of exports for tests of exporters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.export_queue.definition import (
    SEQUENCE,
    TOMBSTONE,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.rows import rows_schema
from sleeper.schema.model import Field, FieldType, PrimitiveType

Export = tuple[Any, Mapping[str, Any] | None, int]
"""The key, a tuple if there are several fields, the values or None, and the sequence."""


def make_queue(
    exporter: str,
    keys: Mapping[str, FieldType] | None = None,
    values: Mapping[str, FieldType] | None = None,
    name: str = "counts",
    timeout_seconds: int = 30,
    **settings: Any,
) -> ExportQueue:
    """Returns a queue, by default with a text key and values `word`, `amount` and `data`."""
    chosen = {
        "word": PrimitiveType.STRING,
        "amount": PrimitiveType.LONG,
        "data": PrimitiveType.BYTE_ARRAY,
    }
    return ExportQueue(
        name,
        ExportSource.TRANSACTION,
        _fields({"name": PrimitiveType.STRING} if keys is None else keys),
        _fields(chosen if values is None else values, nullable=True),
        ExporterSettings(exporter, **settings),
        timeout_seconds=timeout_seconds,
    )


def _fields(types: Mapping[str, FieldType], nullable: bool = False) -> tuple[Field, ...]:
    return tuple(Field(name, kind, nullable=nullable) for name, kind in types.items())


def make_batch(queue: ExportQueue, exports: Iterable[Export], bucket: int = 0) -> ExportBatch:
    """Returns a batch of the exports, in order of key and then sequence."""
    names = [field.name for field in queue.keys]
    rows = []
    for key, value, sequence in exports:
        parts: Sequence[Any] = key if len(names) > 1 else (key,)
        row = {SEQUENCE: sequence, TOMBSTONE: value is None, **dict(zip(names, parts, strict=True))}
        rows.append({**row, **(value or {})})
    table = pa.Table.from_pylist(rows, schema=rows_schema(queue))
    ordered = table.sort_by([*((name, "ascending") for name in names), (SEQUENCE, "ascending")])
    return ExportBatch(queue, bucket, ordered.combine_chunks().to_batches()[0])
