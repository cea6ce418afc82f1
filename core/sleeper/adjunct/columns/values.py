"""Values of a store as Arrow columns, made of many values at once.

NumPy reads fields of plain types: it goes through the fields, and reads each of them for all
values. Values with lists or maps, and documents, are decoded one by one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.adjunct.contents.values import BYTES_TAG, NUMBER_TAGS, TEXT_TAG, ValueCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.datafiles.arrow import arrow_type, as_json, is_json
from sleeper.datafiles.json_python import value_column
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import DecimalType, ListType, MapType, PrimitiveType

_Indices = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

# An array of fields begins with a byte and their number.
_HEADER_BYTES = 3
_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3
# Numbers are read as if the content went on, also for a null at its end.
_PADDING = bytes(8)


class ValueColumns:
    """Makes columns of some fields of a store's values. `schema` has these fields, all nullable.

    `fields` are their names; None is all fields of the layout. Documents may have any members, so
    an Arrow schema names those to return. InvalidRequestError if there is no such field.
    """

    def __init__(
        self, store: str, layout: Layout, fields: "pa.Schema | Sequence[str] | None" = None
    ) -> None:
        self._store = store
        self._codec = ValueCodec(_with_text(layout))
        self._stored = layout.values or ()
        if layout.values is None:
            self.schema = _document_schema(store, fields)
        else:
            self.schema = _field_schema(store, layout.values, fields)
        self._is_plain = layout.values is not None and not any(
            isinstance(each.type, ListType | MapType) for each in self._stored
        )

    def decode(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        """Returns the fields of values, which have no nulls. DataError if one cannot be."""
        try:
            columns = self._read_plain(values) if self._is_plain else self._read_each(values)
        except (ValueError, IndexError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            raise DataError(f"store {self._store!r}: a value cannot be read: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read_each(self, values: pa.LargeBinaryArray) -> list[pa.Array]:
        decoded = [self._codec.decode(each) for each in values.to_pylist()]
        return [self._column([row.get(f.name) for row in decoded], f.type) for f in self.schema]

    def _column(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        if self._stored and is_json(kind):
            return as_json(pa.array(values, pa.string()))
        return value_column(values, kind)

    def _read_plain(self, values: pa.LargeBinaryArray) -> list[pa.Array]:
        content, starts = _content(values)
        cells = _Cells(content, starts + _HEADER_BYTES)
        columns_read = {
            each.name: cells.read(each, each.name in self.schema.names) for each in self._stored
        }
        return [columns_read[name] for name in self.schema.names]


def _with_text(layout: Layout) -> Layout:
    """Returns the layout with text in place of JSON, so that values of JSON stay as written."""
    if layout.values is None:
        return layout
    values = (
        replace(each, type=PrimitiveType.STRING) if each.type is PrimitiveType.JSON else each
        for each in layout.values
    )
    return replace(layout, values=tuple(values))


class _Cells:
    """Reads field after field of all values. `_starts` are those of the next field's cells."""

    def __init__(self, content: npt.NDArray[np.uint8], indices: _Indices) -> None:
        self._content = content
        self._starts = indices

    def read(self, field: StoredField, is_wanted: bool) -> pa.Array | None:
        """Returns the column of the next field, or None if it only has to be skipped."""
        tags = self._content[self._starts]
        is_null = tags == _NIL
        match field.type:
            case PrimitiveType.BOOLEAN:
                _check(field, tags, is_null | (tags == _FALSE), _TRUE)
                column = pa.array(tags == _TRUE, pa.bool_(), mask=is_null)
                self._starts = self._starts + 1
                return column
            case PrimitiveType.STRING | PrimitiveType.JSON | DecimalType():
                return self._read_content(field, tags, is_null, TEXT_TAG, is_wanted)
            case PrimitiveType.BYTE_ARRAY:
                return self._read_content(field, tags, is_null, BYTES_TAG, is_wanted)
            case PrimitiveType():
                return self._read_numbers(field, field.type, tags, is_null)
        raise AssertionError(field)

    def _read_numbers(
        self, field: StoredField, kind: PrimitiveType, tags: Any, is_null: _Bools
    ) -> pa.Array:
        tag, stored = NUMBER_TAGS[kind]
        _check(field, tags, is_null, tag)
        numbers = self._gather(stored)
        target = arrow_type(kind)
        raw = pa.array(
            numbers.astype(numbers.dtype.newbyteorder("=")),
            mask=is_null if is_null.any() else None,
        )
        self._advance(is_null, numbers.dtype.itemsize)
        return raw if raw.type == target else raw.cast(target)

    def _read_content(
        self, field: StoredField, tags: Any, is_null: _Bools, tag: int, is_wanted: bool
    ) -> pa.Array | None:
        _check(field, tags, is_null, tag)
        lengths = np.where(is_null, 0, self._gather(">u4")).astype(np.int64)
        starts = self._starts + 1 + 4
        self._advance(is_null, 4 + lengths)
        if not is_wanted:
            return None
        target = arrow_type(field.type)
        plain = pa.binary() if pa.types.is_binary(target) else pa.string()
        column = _slices(self._content, starts, lengths, is_null, plain)
        return column if column.type == target else column.cast(target)

    def _gather(self, kind: str) -> npt.NDArray[Any]:
        """Returns the number after the first byte of each cell."""
        content = self._content
        width = np.dtype(kind).itemsize
        at_each_byte = np.ndarray((len(content) - width,), kind, content, 1, (1,))
        return at_each_byte[self._starts]

    def _advance(self, is_null: _Bools, width: "int | _Indices") -> None:
        self._starts = self._starts + np.where(is_null, 1, 1 + width)


def _content(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.uint8], _Indices]:
    """Returns the bytes of all values, with some more, and the index at which each begins."""
    _, offsets, content = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    first, end = int(starts[0]), int(starts[-1])
    padded = np.frombuffer(b"".join((memoryview(content)[first:end], _PADDING)), np.uint8)
    return padded, starts[:-1] - first


def _slices(
    content: npt.NDArray[np.uint8],
    starts: _Indices,
    lengths: _Indices,
    is_null: _Bools,
    kind: pa.DataType,
) -> pa.Array:
    """Returns parts of the content as an array of the kind, text or bytes."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    indices = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    validity = pa.array(~is_null).buffers()[1] if is_null.any() else None
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content[indices])]
    column = pa.Array.from_buffers(kind, len(lengths), buffers)
    column.validate(full=True)
    return column


def _check(field: StoredField, tags: Any, is_valid: _Bools, tag: int) -> None:
    if not np.all(is_valid | (tags == tag)):
        raise ValueError(f"field {field.name!r} has another type")


def _field_schema(
    store: str, stored: Sequence[StoredField], fields: "pa.Schema | Sequence[str] | None"
) -> pa.Schema:
    types = {each.name: arrow_type(each.type) for each in stored}
    names = fields.names if isinstance(fields, pa.Schema) else fields
    for name in names or ():
        if name not in types:
            raise InvalidRequestError(
                f"store {store!r} has no value field {name!r} (expected one of: "
                f"{', '.join(types) or 'none'})"
            )
    return pa.schema([pa.field(n, types[n]) for n in (types if names is None else names)])


def _document_schema(store: str, fields: "pa.Schema | Sequence[str] | None") -> pa.Schema:
    if not isinstance(fields, pa.Schema):
        raise InvalidRequestError(
            f"store {store!r} has documents as values (expected an Arrow schema of the members)"
        )
    return pa.schema([each.with_nullable(True) for each in fields])
