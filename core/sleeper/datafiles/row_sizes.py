"""The sizes of rows in memory."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import is_json, is_view, view_lengths

_VIEW_BYTES = 16
_OFFSET_BYTES = 4


def row_bytes(fields: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Returns the bytes of each row in memory. Values that rows share count for each of them."""
    sizes = np.zeros(len(fields[0]), np.int64)
    for values in fields:
        sizes += _value_bytes(values)
    return sizes


def _value_bytes(values: pa.Array) -> npt.NDArray[np.integer] | int:
    kind = values.type
    if is_json(kind):
        return _value_bytes(values.storage)
    if is_view(kind):
        sizes: npt.NDArray[np.int64] = view_lengths(values).astype(np.int64) + _VIEW_BYTES
        return sizes
    if pa.types.is_list(kind):
        return _bytes_of_lists(values.offsets, [values.values])
    if pa.types.is_map(kind):
        return _bytes_of_lists(values.offsets, [values.keys, values.items])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.diff(text_offsets(values)) + _OFFSET_BYTES
    return -(-int(kind.bit_width) // 8)


def text_offsets(values: pa.Array) -> npt.NDArray[np.int32]:
    """Returns the offsets of plain text or bytes."""
    start = values.offset * _OFFSET_BYTES
    return np.ndarray((len(values) + 1,), np.int32, values.buffers()[1], start)


def _bytes_of_lists(offsets: pa.Array, elements: Sequence[pa.Array]) -> npt.NDArray[np.integer]:
    """Returns the bytes of each list, whose elements are parts of these arrays."""
    positions = offsets.to_numpy()
    first, last = int(positions[0]), int(positions[-1])
    ends = np.zeros(last - first + 1, np.int64)
    if last > first:
        np.cumsum(row_bytes([each.slice(first, last - first) for each in elements]), out=ends[1:])
    sizes: npt.NDArray[np.int64] = np.diff(ends[positions - first]) + _OFFSET_BYTES
    return sizes
