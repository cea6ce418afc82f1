"""Batches of exports for tests of exporters."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.export_queue.definition import (
    GONE,
    SEQUENCE,
    ExporterSettings,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.rows import rows_schema
from sleeper.schema.model import Field, PrimitiveType

KEYS = (Field("k", PrimitiveType.STRING),)
VALUES = (
    Field("v", PrimitiveType.STRING),
    Field("n", PrimitiveType.LONG),
    Field("b", PrimitiveType.BYTE_ARRAY),
)


def make_queue(
    exporter: str,
    password: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    keys: Sequence[Field] = KEYS,
    values: Sequence[Field] = VALUES,
    timeout_seconds: int = 30,
) -> ExportQueue:
    """Returns a queue `orders` with a text key and values of three types, or with other fields."""
    return ExportQueue(
        "orders",
        ExportSource.INGEST,
        tuple(keys),
        tuple(values),
        ExporterSettings(exporter, password, dict(options or {})),
        timeout_seconds=timeout_seconds,
    )


def make_batch(
    queue: ExportQueue, *exports: tuple[Any, Mapping[str, Any] | None, int]
) -> ExportBatch:
    """Returns a batch of bucket 7 of keys, values and sequence numbers; no value is a gone key."""
    rows = [
        {
            SEQUENCE: sequence,
            GONE: value is None,
            **dict(zip([f.name for f in queue.keys], _tuple(key), strict=True)),
            **dict.fromkeys(field.name for field in queue.values),
            **(value or {}),
        }
        for key, value, sequence in exports
    ]
    return ExportBatch(queue, 7, pa.RecordBatch.from_pylist(rows, schema=rows_schema(queue)))


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
