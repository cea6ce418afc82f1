"""Keys of a store as bytes, whose order is that of the keys.

A number is big-endian with its sign bit flipped. Text (as UTF-8) and bytes stand as they are in the
last field; in earlier fields a zero byte is followed by 255, and two zero bytes end the value. A
key has a byte 1 first, so that none is empty, and all are below a byte 2.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.definition import Layout
from sleeper.adjunct.engines.engine import KEYS_START
from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.key_values import as_key_column
from sleeper.datafiles.sidecars.key_order import SHORT_NUMBERS
from sleeper.errors import InvalidRequestError
from sleeper.schema.key_values import check_key_value, python_key_value
from sleeper.schema.model import (
    PLAIN_KEY_TYPES,
    Field,
    FieldType,
    KeyValue,
    PrimitiveType,
    key_number_range,
)

_ZERO = b"\0"
_ESCAPED = b"\0\xff"
_END = b"\0\0"
_LONG = struct.Struct(">Q")
_WHOLE_LONG = struct.Struct(">BQ")
_INT = struct.Struct(">I")
_LONG_SIGN = 2**63
_INT_SIGN = 2**31
_ONE = pa.scalar(KEYS_START, pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())


class KeyCodec:
    """Converts keys of one layout. A key is a value, or a tuple if there are several fields."""

    def __init__(self, store: str, layout: Layout) -> None:
        self._store = store
        self._fields = [Field(each.name, each.type) for each in layout.keys]
        self.types = layout.key_types()
        self.encode: Callable[[Any], bytes] = self._single() or self._encode
        """Returns the bytes of a key. InvalidRequestError if it is of another type."""

    def encode_many(self, keys: Sequence[Any]) -> list[bytes]:
        """Returns the bytes of each key. InvalidRequestError if one is of another type."""
        try:
            if self.types == [PrimitiveType.LONG] and set(map(type, keys)) == {int}:
                pack = _WHOLE_LONG.pack
                return [pack(1, key + _LONG_SIGN) for key in keys]
            if self.types == [PrimitiveType.STRING]:
                return list(map(KEYS_START.__add__, map(str.encode, keys)))
        except (struct.error, TypeError, UnicodeEncodeError):
            pass  # `encode` tells which key is wrong
        return list(map(self.encode, keys))

    def encode_rows(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Returns the bytes of each row's key, of columns of the fields' Arrow types."""
        encoded: list[bytes] = encode_key_columns(columns, self.types).to_pylist()
        return encoded

    def decode(self, content: bytes) -> Any:
        """Returns the key of bytes."""
        values, at = [], len(KEYS_START)
        for number, field in enumerate(self._fields):
            value, at = _decode(content, at, field.type, number == len(self.types) - 1)
            values.append(value if field.type in PLAIN_KEY_TYPES else _shown(field, value))
        return values[0] if len(values) == 1 else tuple(values)

    def encode_bound(self, bound: Any) -> bytes:
        """Returns the bytes at which keys begin that are not below the bound.

        A tuple may have the first fields only. InvalidRequestError if a value is of another type.
        """
        values = bound if isinstance(bound, tuple) else (bound,)
        if len(values) == len(self._fields):
            return self._encode(values if len(values) > 1 else values[0])
        if not 0 < len(values) < len(self._fields):
            raise self._error(bound)
        return self._join(values)

    def _encode(self, key: Any) -> bytes:
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(self._fields):
            raise self._error(key)
        return self._join(values)

    def _join(self, values: tuple[Any, ...]) -> bytes:
        parts = [KEYS_START]
        last = len(self._fields) - 1
        for number, (field, value) in enumerate(zip(self._fields, values, strict=False)):
            try:
                number_or_content = check_key_value(field, value)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"store {self._store!r}: {error}") from None
            parts.append(_encode(number_or_content, field.type, number == last))
        return b"".join(parts)

    def _single(self) -> Callable[[Any], bytes] | None:
        """Returns a fast function for a key of one field."""
        if len(self.types) > 1:
            return None
        slow = self._encode
        pack = _WHOLE_LONG.pack

        def encode_long(key: Any) -> bytes:
            if type(key) is int and -_LONG_SIGN <= key < _LONG_SIGN:
                return pack(1, key + _LONG_SIGN)
            return slow(key)

        def encode_text(key: Any) -> bytes:
            if type(key) is str:
                try:
                    return KEYS_START + key.encode()
                except UnicodeEncodeError:
                    pass
            return slow(key)

        fast = {PrimitiveType.LONG: encode_long, PrimitiveType.STRING: encode_text}
        kind = self.types[0]
        return fast.get(kind) if isinstance(kind, PrimitiveType) else None

    def _error(self, key: object) -> InvalidRequestError:
        names = ", ".join(each.name for each in self._fields)
        count = len(self._fields)
        expected = f"a value of {names}" if count == 1 else f"a tuple of {count} values: {names}"
        return InvalidRequestError(f"store {self._store!r}: key {key!r} (expected {expected})")


def _shown(field: Field, value: KeyValue) -> Any:
    """Returns a value as Python has it, and times and dates of far years as numbers."""
    try:
        return python_key_value(field, value)
    except OverflowError:
        return value


def encode_key_columns(columns: Sequence[pa.Array], types: Sequence[FieldType]) -> pa.Array:
    """Returns the bytes of each row's key as an Arrow array of binary values."""
    parts: list[pa.Array | pa.Scalar] = [_ONE]
    for number, (column, kind) in enumerate(zip(columns, types, strict=True)):
        column = as_key_column(as_plain(column))
        if key_number_range(kind) is not None:
            is_short = kind in SHORT_NUMBERS
            parts.append(_number_cells(column.cast(pa.int32() if is_short else pa.int64())))
            continue
        content = column.cast(pa.binary())
        if number < len(types) - 1:
            content = pc.replace_substring(content, _ZERO, _ESCAPED)
            content = pc.binary_join_element_wise(content, pa.scalar(_END, pa.binary()), _NOTHING)
        parts.append(content)
    return pc.binary_join_element_wise(*parts, _NOTHING)


def decode_number_keys(contents: pa.Array, kind: FieldType) -> pa.Array:
    """Returns the numbers of keys of one number field, of an array of their bytes."""
    is_long = kind is PrimitiveType.LONG
    stored = np.dtype([("first", "u1"), ("number", ">u8" if is_long else ">u4")])
    if not len(contents):
        return pa.array([], pa.int64())
    cells = np.frombuffer(contents.buffers()[2], stored, len(contents))
    unsigned = cells["number"].astype(np.uint64)
    if is_long:
        return pa.array((unsigned ^ np.uint64(_LONG_SIGN)).view(np.int64))
    return pa.array(unsigned.view(np.int64) - _INT_SIGN)


def _number_cells(column: pa.Array) -> pa.Array:
    numbers = column.to_numpy(zero_copy_only=False)
    is_long = numbers.dtype == np.int64
    sign = np.uint64(_LONG_SIGN) if is_long else np.uint32(_INT_SIGN)
    unsigned = numbers.view(np.uint64 if is_long else np.uint32) ^ sign
    width = unsigned.itemsize
    content = unsigned.astype(f">u{width}")
    offsets = np.arange(0, (len(content) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(content), buffers)


def _encode(value: KeyValue, kind: FieldType, is_last: bool) -> bytes:
    if isinstance(value, int):
        if kind in SHORT_NUMBERS:
            return _INT.pack(value + _INT_SIGN)
        return _LONG.pack(value + _LONG_SIGN)
    content = value.encode() if isinstance(value, str) else value
    return content if is_last else content.replace(_ZERO, _ESCAPED) + _END


def _decode(content: bytes, at: int, kind: FieldType, is_last: bool) -> tuple[Any, int]:
    """Returns the value at an index, and the index after it."""
    if kind in SHORT_NUMBERS:
        return _INT.unpack_from(content, at)[0] - _INT_SIGN, at + _INT.size
    if key_number_range(kind) is not None:
        return _LONG.unpack_from(content, at)[0] - _LONG_SIGN, at + _LONG.size
    end = len(content)
    if not is_last:
        end = content.index(_END, at)
        # A value that ends with zero bytes has them escaped, so the first pair may be part of one.
        while content[end : end + 2] != _END:
            end = content.index(_END, end + 1)
    value = content[at:end]
    if not is_last:
        value, end = value.replace(_ESCAPED, _ZERO), end + len(_END)
    return (value.decode() if kind is PrimitiveType.STRING else value), end
