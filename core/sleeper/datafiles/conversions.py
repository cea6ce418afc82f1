"""Conversions between NumPy, Python and Arrow that leave pandas alone.

Arrow's own conversions import pandas, if it is installed, with the first value of a process
(apache/arrow#34994). That takes longer than the other work of a process that reads a few rows.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.schema.model import KeyValue


def as_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """Returns the values of a column of integers without nulls, not copied."""
    kind = np.dtype(str(column.type))
    _, values = column.buffers()
    if values is None:
        return np.empty(0, kind)
    return np.frombuffer(values, kind, len(column), column.offset * kind.itemsize)


def as_booleans(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns the values of a column of booleans without nulls."""
    _, values = column.buffers()
    start, stop = column.offset, column.offset + len(column)
    bits = np.frombuffer(b"" if values is None else values, np.uint8)[start // 8 : (stop + 7) // 8]
    unpacked = np.unpackbits(bits, bitorder="little")[start % 8 :]
    return unpacked[: len(column)].view(np.bool_)


def integer_array(values: npt.NDArray[Any]) -> pa.Array:
    """Returns integers as an Arrow array."""
    kind = pa.from_numpy_dtype(values.dtype)
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, buffer])


def boolean_array(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Returns booleans as an Arrow array."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def key_array(values: Sequence[KeyValue], kind: pa.DataType) -> pa.Array:
    """Returns keys as an Arrow array of an integer type, text or bytes."""
    if pa.types.is_integer(kind):
        return integer_array(np.array(values, np.dtype(str(kind))))
    encoded = [_encode(each) for each in values]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(encoded), buffers)


@lru_cache(maxsize=100)
def text_scalar(value: str) -> pa.StringScalar:
    """Returns a text as an Arrow scalar."""
    return key_array([value], pa.string())[0]


def empty_table(schema: pa.Schema) -> pa.Table:
    """Returns a table without rows."""
    return pa.Table.from_batches([], schema)


def _encode(value: KeyValue) -> bytes:
    assert not isinstance(value, int)
    return value.encode() if isinstance(value, str) else value
