"""Values of a store as bytes: MessagePack, made of whole columns.

A value with fields is an array of its values in the layout's order. Times are integers of
microseconds, dates of days, and decimals and JSON are text.
"""

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.definition import Layout, StoredField
from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.json_python import parse_json
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType

_NOTHING = pa.scalar(b"", pa.binary())
_NIL_BYTE = b"\xc0"
_NIL = pa.scalar(_NIL_BYTE, pa.binary())
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()

_ARRAY = b"\xdc"
_LIST = 0xDD
_MAP = 0xDF
TEXT_TAG, BYTES_TAG = 0xDB, 0xC6
NUMBER_TAGS: dict[PrimitiveType, tuple[int, str]] = {
    PrimitiveType.INT: (0xD2, ">i4"),
    PrimitiveType.LONG: (0xD3, ">i8"),
    PrimitiveType.FLOAT: (0xCA, ">f4"),
    PrimitiveType.DOUBLE: (0xCB, ">f8"),
    PrimitiveType.TIMESTAMP: (0xD3, ">i8"),
    PrimitiveType.DATE: (0xD2, ">i4"),
}
"""The byte before a number of the type, and the number's type in MessagePack's byte order."""

_decode = msgspec.msgpack.Decoder().decode

Cells = list[pa.Array | pa.Scalar]
"""Arrays of bytes that stand one after another in each row."""


class ValueCodec:
    """Converts values of one layout: mappings of its fields, or documents of their own."""

    def __init__(self, layout: Layout) -> None:
        self._fields = layout.values
        self._construct = None if layout.values is None else _constructor(layout.values)
        self.decode: Callable[[bytes], Any] = self._decoder()
        """Returns the value of bytes."""

    def decode_many(self, contents: Sequence[bytes | None]) -> list[Any]:
        """Returns the value of each of the bytes, None for None."""
        # One array of all values is decoded faster than many values.
        parts = [_NIL_BYTE if each is None else each for each in contents]
        header = bytes([_LIST]) + len(parts).to_bytes(4, "big")
        decoded: list[Any] = _decode(b"".join((header, *parts)))
        construct = self._construct
        if construct is None:
            return decoded
        return [None if each is None else construct(*each) for each in decoded]

    def encode_rows(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        """Returns the bytes of each row's value, of columns of the fields' Arrow types."""
        assert self._fields is not None
        parts: Cells = [pa.scalar(_ARRAY + len(self._fields).to_bytes(2, "big"), pa.binary())]
        for column, field in zip(columns, self._fields, strict=True):
            parts += _encode_column(as_plain(column), field.type)
        if len(parts) == 1:
            return [parts[0].as_py()] * rows
        joined: list[bytes] = pc.binary_join_element_wise(*parts, _NOTHING).to_pylist()
        return joined

    def _decoder(self) -> Callable[[bytes], Any]:
        construct = self._construct
        if construct is None:
            return _decode
        return lambda content: construct(*_decode(content))

    @staticmethod
    def encode_document(value: Any) -> bytes:
        """Returns the bytes of a document. TypeError if it has a value of an unknown type."""
        return msgspec.msgpack.encode(value)


def _constructor(fields: Sequence[StoredField]) -> Callable[..., dict[str, Any]]:
    """Returns a function of a value for each field, which returns the mapping of the fields.

    It is made of text, as methods of dataclasses are: `dict(zip(names, values))` takes three times
    as long.
    """
    arguments, members, converters = [], [], {}
    for number, field in enumerate(fields):
        argument, converter = f"value_{number}", _converter(field.type)
        arguments.append(argument)
        if converter is not None:
            converters[f"convert_{number}"] = converter
            argument += f" if {argument} is None else convert_{number}({argument})"
        members.append(f"{field.name!r}: {argument}")
    source = f"lambda {', '.join(arguments)}: {{{', '.join(members)}}}"
    constructor: Callable[..., dict[str, Any]] = eval(source, converters)
    return constructor


def _converter(kind: FieldType) -> Callable[[Any], Any] | None:
    """Returns the function that makes the Python value of what MessagePack has, if it differs."""
    match kind:
        case PrimitiveType.TIMESTAMP:
            return lambda number: _EPOCH + datetime.timedelta(microseconds=number)
        case PrimitiveType.DATE:
            return lambda number: datetime.date.fromordinal(number + _EPOCH_DAY)
        case PrimitiveType.JSON:
            return parse_json
        case DecimalType():
            return decimal.Decimal
        case ListType(element):
            of_element = _converter(element)
            return None if of_element is None else lambda values: [of_element(v) for v in values]
        case MapType(key, value):
            of_key, of_value = _converter(key), _converter(value)
            if of_key is None and of_value is None:
                return None
            return lambda entries: {
                (of_key(k) if of_key else k): (of_value(v) if of_value else v)
                for k, v in entries.items()
            }
    return None


def _encode_column(column: pa.Array, kind: FieldType) -> Cells:
    """Returns the cells of a column, which may have nulls."""
    if not column.null_count:
        return _encode_valid(column, kind)
    is_valid = column.is_valid()
    # The cells of valid values, spread over all rows.
    valid = pc.binary_join_element_wise(*_encode_valid(column.drop_null(), kind), _NOTHING)
    indices = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int64())), 1)
    spread = valid.take(pc.if_else(is_valid, indices, pa.scalar(None, pa.int64())))
    return [pc.fill_null(spread, _NIL)]


def _encode_valid(column: pa.Array, kind: FieldType) -> Cells:
    match kind:
        case PrimitiveType.BOOLEAN:
            true, false = (pa.scalar(each, pa.binary()) for each in (b"\xc3", b"\xc2"))
            return [pc.if_else(column, true, false)]
        case PrimitiveType.STRING | PrimitiveType.JSON | DecimalType():
            return _prefix_lengths(column.cast(pa.string()).cast(pa.binary()), TEXT_TAG)
        case PrimitiveType.BYTE_ARRAY:
            return _prefix_lengths(column, BYTES_TAG)
        case PrimitiveType():
            return [_encode_numbers(column, kind)]
        case ListType(element):
            return _encode_nested(column, _encode_column(column.flatten(), element), _LIST)
        case MapType(key, value):
            entries = _entries(column)
            cells = [*_encode_column(entries[0], key), *_encode_column(entries[1], value)]
            return _encode_nested(column, cells, _MAP)


def _entries(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the keys and the values of all maps of the column."""
    offsets = column.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return column.keys.slice(start, end - start), column.items.slice(start, end - start)


def _encode_numbers(column: pa.Array, kind: PrimitiveType) -> pa.Array:
    prefix, target = NUMBER_TAGS[kind]
    stored = {PrimitiveType.TIMESTAMP: pa.int64(), PrimitiveType.DATE: pa.int32()}.get(kind)
    numbers = (column if stored is None else column.cast(stored)).to_numpy(zero_copy_only=False)
    return _fixed_cells(prefix, numbers.astype(target))


def _prefix_lengths(content: pa.Array, prefix: int) -> Cells:
    lengths = pc.binary_length(content).to_numpy(zero_copy_only=False)
    return [_fixed_cells(prefix, lengths.astype(">u4")), content]


def _encode_nested(column: pa.Array, cells: Cells, prefix: int) -> Cells:
    """Returns the cells of lists or maps, whose elements have the cells."""
    elements = pc.binary_join_element_wise(*cells, _NOTHING)
    offsets = column.offsets
    lengths = np.diff(offsets.to_numpy())
    offsets = pc.subtract(offsets, offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), _NOTHING)
    return [_fixed_cells(prefix, lengths.astype(">u4")), joined]


def _fixed_cells(prefix: int, content: np.ndarray[Any, Any]) -> pa.Array:
    """Returns cells of a byte and a number."""
    width = content.itemsize + 1
    cells = np.empty((len(content), width), np.uint8)
    cells[:, 0] = prefix
    cells[:, 1:] = content.view(np.uint8).reshape(-1, content.itemsize)
    offsets = np.arange(0, (len(content) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells)]
    return pa.Array.from_buffers(pa.binary(), len(content), buffers)
