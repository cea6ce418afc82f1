"""The sizes of foreign Arrow values as a table stores them: plain, and each value for itself.

Layouts of Arrow that the tables do not use share values: a dictionary, views of text, a column of
nulls without a buffer. Their bytes say nothing about the rows that a cast makes of them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import is_json, is_view, view_lengths

CELL_BYTES = 8
"""The least that a value counts, also a null."""

Sizes = npt.NDArray[np.int64] | int
"""The bytes of each value, or of every value if they are equal."""


def is_compact(kind: pa.DataType) -> bool:
    """Whether values of the type may be larger than their share of the array's bytes.

    Top-level values of a fixed size are not: each of them counts at least `CELL_BYTES` anyway.
    """
    if is_json(kind):
        return is_compact(kind.storage_type)
    if is_view(kind) or pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return True
    return any(
        is_compact(inner) or not (_is_varied(inner) or pa.types.is_nested(inner))
        for inner in (kind.field(position).type for position in range(kind.num_fields))
    )


def expanded_bytes(values: pa.Array) -> Sizes:
    """Returns the size of each value. The array must be valid."""
    kind = values.type
    if is_json(kind):
        return expanded_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        return _of_dictionary(values)
    if is_view(kind):
        return view_lengths(values).astype(np.int64)
    if _is_varied(kind):
        return np.diff(_offsets(values))
    if pa.types.is_fixed_size_list(kind):
        return _of_lists(np.arange(len(values) + 1) * kind.list_size, [_elements(values)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(values.offsets.to_numpy(), [values.values])
    if pa.types.is_map(kind):
        return _of_lists(values.offsets.to_numpy(), [values.keys, values.items])
    if pa.types.is_struct(kind):
        return _sum([expanded_bytes(each) for each in values.flatten()])
    is_fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return max(CELL_BYTES, kind.bit_width // 8) if is_fixed else CELL_BYTES


def _is_varied(kind: pa.DataType) -> bool:
    """Whether this is text or bytes of any length, with offsets."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _offsets(values: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the offsets of text or bytes."""
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(len(values) + 1, np.int64)
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    every = np.frombuffer(buffer, np.int64 if is_large else np.int32)
    return every[values.offset : values.offset + len(values) + 1].astype(np.int64)


def _elements(lists: pa.FixedSizeListArray) -> pa.Array:
    size = lists.type.list_size
    return lists.values.slice(lists.offset * size, len(lists) * size)


def _of_dictionary(values: pa.DictionaryArray) -> Sizes:
    sizes = expanded_bytes(values.dictionary)
    if isinstance(sizes, int):
        return sizes
    if not len(sizes):
        return CELL_BYTES
    positions = values.indices.fill_null(0).to_numpy(zero_copy_only=False)
    taken: npt.NDArray[np.int64] = sizes[positions]
    return taken


def _of_lists(positions: npt.NDArray[np.integer], elements: Sequence[pa.Array]) -> Sizes:
    """Returns the size of each list. `places` are the offsets of their elements."""
    first, last = (int(positions[0]), int(positions[-1])) if len(positions) else (0, 0)
    size = _sum([expanded_bytes(each.slice(first, last - first)) for each in elements])
    if isinstance(size, int):
        plain: npt.NDArray[np.int64] = np.diff(positions).astype(np.int64) * size + CELL_BYTES
        return plain
    ends = np.zeros(last - first + 1, np.int64)
    np.cumsum(size, out=ends[1:])
    varied: npt.NDArray[np.int64] = np.diff(ends[positions - first]) + CELL_BYTES
    return varied


def _sum(sizes: Sequence[Sizes]) -> Sizes:
    total: Sizes = 0
    for size in sizes:
        total = total + np.maximum(size, CELL_BYTES) if not isinstance(size, int) else total + size
    return total
