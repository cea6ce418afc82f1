"""Key columns of Arrow as the values that sort (`KeyValue`), and those as Arrow scalars.

A timestamp or decimal key is a 64-bit integer, a date a 32-bit integer, a boolean an 8-bit integer.
Searches, bounds, sketches and filters see only these integers, text and bytes.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.schema.model import KeyValue

_WORDS = 2
"""64-bit words of a decimal. The first has the value of a key, which has at most 18 digits."""


def as_key_column(column: pa.Array) -> pa.Array:
    """Returns a key column as integers, text or bytes, in the same order.

    Timestamps and dates are not copied. Other types are returned as they are.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal128(kind):
        return _unscaled(column)
    return column


@lru_cache(maxsize=256)
def key_column_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of `as_key_column` of a type."""
    return as_key_column(pa.array([], kind)).type


def key_values(column: pa.Array) -> list[KeyValue]:
    """Returns the values of a key column."""
    values: list[KeyValue] = as_key_column(column).to_pylist()
    return values


def key_value(value: pa.Scalar) -> Any:
    """Returns a value of a key column."""
    if isinstance(value, pa.TimestampScalar | pa.Date32Scalar):
        return value.value
    result = value.as_py()
    if isinstance(result, bool):
        return int(result)
    return int(result.scaleb(value.type.scale)) if isinstance(result, Decimal) else result


def key_scalar(value: KeyValue, kind: pa.DataType) -> pa.Scalar:
    """Returns a value as a scalar of a key column's type."""
    return pa.scalar(_arrow_value(value, kind), kind)


def from_key_values(values: Sequence[KeyValue | None], kind: pa.DataType) -> pa.Array:
    """Returns values as a key column of a type."""
    if pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return pa.array([_arrow_value(value, kind) for value in values], kind)
    return pa.array(values, kind)


def _arrow_value(value: KeyValue | None, kind: pa.DataType) -> KeyValue | Decimal | None:
    """Returns the value from which Arrow makes one of the type."""
    if isinstance(value, int):
        if pa.types.is_decimal(kind):
            return Decimal(value).scaleb(-kind.scale)
        if pa.types.is_boolean(kind):
            return bool(value)
    return value


def key_statistics(found: pq.Statistics) -> tuple[KeyValue, KeyValue] | None:
    """Returns the bounds of a key column in a row group; None if they are not known."""
    if not found.has_min_max:
        return None
    if found.physical_type == "BYTE_ARRAY":
        return found.min, found.max
    # Arrow's values have no dates of far years.
    return _number(found.min_raw), _number(found.max_raw)


def _number(value: Any) -> int:
    # Decimals may be big-endian bytes.
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)


def _unscaled(column: pa.Array) -> pa.Array:
    valid, content = column.buffers()
    words = np.frombuffer(b"" if content is None else content, np.int64)
    start = column.offset * _WORDS
    numbers = np.ascontiguousarray(words[start : start + len(column) * _WORDS : _WORDS])
    buffers = [None, pa.py_buffer(numbers)]
    if valid is not None and column.null_count:
        buffers[0] = pc.is_valid(column).buffers()[1]
    return pa.Array.from_buffers(pa.int64(), len(column), buffers)
