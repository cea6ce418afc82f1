"""Rows in memory that is used again for the next rows.

The system takes longer to provide fresh memory than a sort takes to use it, so the columns of a
buffer are copied to arrays that are allocated once. Columns of other than fixed size or text are
kept as the batches that they were added in.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain, has_short_views, is_view, without_pages
from sleeper.datafiles.row_sizes import row_bytes, text_offsets

Values = npt.NDArray[Any]

# Values by width in bytes. Complex numbers stand for views and decimals.
_WIDTHS: dict[int, type[np.generic]] = {
    4: np.uint32,
    8: np.uint64,
    16: np.complex128,
}
_VIEW_BYTES = 16
_OFFSET_BYTES = 4
_BYTE_BITS = 8
_GROWTH = 16
_FAST_GROWTH_BYTES_MAX = 16 * 1024**2
_ROWS_MIN = 8192
_TEXT_BYTES_MIN = 64 * 1024
# Offsets of text have 32 bits.
_TEXT_BYTES_MAX = 2**31 - 1


class RowBuffer:
    """Rows of a schema of views. Batches are added in parts of about `part_bytes`."""

    def __init__(self, kind: pa.Schema, part_bytes: int) -> None:
        self.rows = 0
        self.kind = kind
        self.has_room = True
        self._part_bytes = part_bytes
        self._columns = [_open_column(each.type) for each in kind]

    @property
    def bytes(self) -> int:
        """The bytes of the rows."""
        return sum(each.bytes for each in self._columns)

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the first rows, and returns the others.

        It adds none, and has no room until `clear`, if their text does not fit.
        """
        ends = np.cumsum(row_bytes(batch.columns))
        part = max(int(np.searchsorted(ends, self._part_bytes, "right")), 1)
        if self.rows and self.bytes + int(ends[part - 1]) > _TEXT_BYTES_MAX:
            self.has_room = False
            return batch
        taken = batch.slice(0, part)
        for column, values in zip(self._columns, taken.columns, strict=True):
            column.add(values, self.rows)
        self.rows += taken.num_rows
        return batch.slice(part)

    def columns(self) -> list[pa.Array]:
        """Returns the rows, valid until `clear`. Text and bytes are short views, or plain."""
        return [column.array(self.rows) for column in self._columns]

    def clear(self) -> None:
        """Forgets the rows."""
        self.rows = 0
        self.has_room = True
        for column in self._columns:
            column.clear()


class _Column(Protocol):
    @property
    def bytes(self) -> int: ...
    def add(self, values: pa.Array, at: int) -> None: ...
    def array(self, rows: int) -> pa.Array: ...
    def clear(self) -> None: ...


def _width(kind: pa.DataType) -> int | None:
    """Returns the bytes of a value. None if it has no fixed number of whole bytes."""
    if is_view(kind):
        return _VIEW_BYTES
    if not pa.types.is_primitive(kind) and not pa.types.is_decimal128(kind):
        return None
    return kind.bit_width // _BYTE_BITS or None


def _open_column(kind: pa.DataType) -> _Column:
    if is_view(kind):
        return _TextColumn(kind)
    return _FixedColumn(kind) if _width(kind) in _WIDTHS else _Batches(kind)


def _with_room(array: Values, size: int) -> Values:
    """Returns the array, or a copy of at least this size."""
    if size <= len(array):
        return array
    # Memory that is not written yet takes no room, but systems refuse arrays larger than they have.
    growth = _GROWTH if array.nbytes < _FAST_GROWTH_BYTES_MAX else 2
    larger = np.empty(max(size, growth * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


class _Validity:
    """Which values are not null. It has memory only if some are."""

    def __init__(self) -> None:
        self._is_valid = np.empty(0, np.bool_)
        self._has_nulls = False

    def add(self, values: pa.Array, at: int) -> None:
        if not self._has_nulls and not values.null_count:
            return
        self._is_valid = _with_room(self._is_valid, at + len(values))
        if not self._has_nulls:
            self._has_nulls = True
            self._is_valid[:at] = True
        is_valid = True
        if values.null_count:
            is_valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        self._is_valid[at : at + len(values)] = is_valid

    def buffer(self, rows: int) -> pa.Buffer | None:
        if not self._has_nulls:
            return None
        return pa.py_buffer(np.packbits(self._is_valid[:rows], bitorder="little"))

    def clear(self) -> None:
        self._has_nulls = False


class _FixedColumn:
    """Values of one width: numbers, times, decimals and short views."""

    def __init__(self, kind: pa.DataType) -> None:
        self.bytes = 0
        self._kind = kind
        self._width = _width(kind) or 0
        self._values: Values = np.empty(_ROWS_MIN, _WIDTHS[self._width])
        self._validity = _Validity()

    def add(self, values: pa.Array, at: int) -> None:
        self._validity.add(values, at)
        count, kind, first = len(values), self._values.dtype, values.offset * self._width
        self._values = _with_room(self._values, at + count)
        self._values[at : at + count] = np.ndarray((count,), kind, values.buffers()[1], first)
        self.bytes += count * self._width

    def array(self, rows: int) -> pa.Array:
        buffers = [self._validity.buffer(rows), pa.py_buffer(self._values[:rows])]
        return pa.Array.from_buffers(self._kind, rows, buffers)

    def clear(self) -> None:
        self.bytes = 0
        self._validity.clear()


class _TextColumn:
    """Text or bytes: short views until there is a long value, and plain from then on."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._column: _FixedColumn | _PlainColumn = _FixedColumn(kind)

    @property
    def bytes(self) -> int:
        return self._column.bytes

    def add(self, values: pa.Array, at: int) -> None:
        if isinstance(self._column, _FixedColumn):
            values = without_pages(values.cast(self._kind))
            if not has_short_views(values):
                plain = _PlainColumn(as_plain(values).type)
                if at:
                    plain.add(as_plain(self._column.array(at)), 0)
                self._column = plain
        if isinstance(self._column, _PlainColumn):
            values = as_plain(values)
        self._column.add(values, at)

    def array(self, rows: int) -> pa.Array:
        return self._column.array(rows)

    def clear(self) -> None:
        self._column.clear()


class _PlainColumn:
    """Text or bytes of any length."""

    def __init__(self, kind: pa.DataType) -> None:
        self.bytes = 0
        self._kind = kind
        self._used = 0
        self._ends: Values = np.zeros(_ROWS_MIN, np.int32)
        self._data: Values = np.empty(_TEXT_BYTES_MIN, np.uint8)
        self._validity = _Validity()

    def add(self, values: pa.Array, at: int) -> None:
        self._validity.add(values, at)
        count = len(values)
        offsets, data = text_offsets(values), values.buffers()[2]
        first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        if size:
            self._data = _with_room(self._data, self._used + size)
            self._data[self._used : self._used + size] = np.ndarray((size,), np.uint8, data, first)
        self._ends = _with_room(self._ends, at + count + 1)
        np.add(offsets[1:], self._used - first, out=self._ends[at + 1 : at + count + 1])
        self._used += size
        self.bytes += size + count * _OFFSET_BYTES

    def array(self, rows: int) -> pa.Array:
        buffers = [pa.py_buffer(self._ends[: rows + 1]), pa.py_buffer(self._data[: self._used])]
        return pa.Array.from_buffers(self._kind, rows, [self._validity.buffer(rows), *buffers])

    def clear(self) -> None:
        self.bytes = self._used = 0
        self._validity.clear()


class _Batches:
    """Values of any type, which are copied only by `array`."""

    def __init__(self, kind: pa.DataType) -> None:
        self.bytes = 0
        self._kind = kind
        self._batches: list[pa.Array] = []

    def add(self, values: pa.Array, at: int) -> None:
        del at
        self._batches.append(values)
        self.bytes += values.nbytes

    def array(self, rows: int) -> pa.Array:
        del rows
        return pa.concat_arrays(self._batches) if self._batches else pa.array([], self._kind)

    def clear(self) -> None:
        self.bytes = 0
        self._batches = []
