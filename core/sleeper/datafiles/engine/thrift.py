"""Structures of Thrift's compact protocol, as Parquet's footers, page indexes and page headers are.

A structure is read as a dict of its values by field number: integers, booleans, bytes, lists, and
dicts for structures. Doubles and maps, which Parquet's metadata lacks, are refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

Structure = dict[int, Any]

BINARY, LIST, STRUCT = 8, 9, 12
INT16, INT32, INT64 = 4, 5, 6
_TRUE, _FALSE = 1, 2
_LONG_LIST = 15
_VARINT_BITS_MAX = 70


def read_structure(data: bytes, at: int = 0, last: int = 2**15) -> tuple[Structure, int]:
    """Returns the structure at the offset, and the offset of its end, or of that of field `last`.

    IndexError if it is torn, ValueError if it has a value of another type.
    """
    fields: Structure = {}
    number = 0
    while number < last and (head := data[at]):
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_integer(data, at)
        kind = head & 15
        # Footers have thousands of these, so the frequent ones need no further call.
        if kind in _INTEGERS and (value := data[at]) < 128:
            fields[number] = value >> 1 ^ -(value & 1)
            at += 1
        elif kind <= _FALSE:
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _READERS.get(kind, _refuse)(data, at)
    return fields, at + (number < last)


def read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Returns the number and type of a list's items, and the offset of the first."""
    head = data[at]
    count, at = (head >> 4, at + 1)
    if count == _LONG_LIST:
        count, at = read_varint(data, at)
    if count > len(data) - at:
        raise IndexError("a list is torn")
    return count, head & 15, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an unsigned number, and the offset of its end."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for shift in range(7, _VARINT_BITS_MAX, 7):
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
    raise ValueError("a number has too many bytes")


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    end = at + length
    if end > len(data):
        raise IndexError("a text is torn")
    return data[at:end], end


def _read_byte(data: bytes, at: int) -> tuple[int, int]:
    return data[at], at + 1


def _read_list(data: bytes, at: int) -> tuple[list[Any], int]:
    count, kind, at = read_list_head(data, at)
    if kind <= _FALSE:
        return [byte == _TRUE for byte in data[at : at + count]], at + count
    read = _READERS.get(kind, _refuse)
    items = []
    for _ in range(count):
        item, at = read(data, at)
        items.append(item)
    return items, at


def _refuse(data: bytes, at: int) -> tuple[Any, int]:  # noqa: ARG001
    raise ValueError("a value has another type")


_READERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    3: _read_byte,
    INT16: _read_integer,
    INT32: _read_integer,
    INT64: _read_integer,
    BINARY: _read_binary,
    LIST: _read_list,
    STRUCT: read_structure,
}
_INTEGERS = frozenset((INT16, INT32, INT64))


def varint(number: int) -> bytes:
    """Encodes a number that is not negative: 7 bits per byte, lowest first."""
    if number < 128:
        return _SHORT[number]
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes((*digits, number))


_SHORT = [bytes([number]) for number in range(128)]


def integer(number: int) -> bytes:
    """Encodes a number that is not negative as a signed one."""
    return varint(number << 1)


def text(value: bytes) -> bytes:
    """Encodes bytes with their length."""
    return varint(len(value)) + value


def list_of(kind: int, items: Sequence[bytes]) -> bytes:
    """Encodes a list of encoded items of the type."""
    count = len(items)
    head = bytes([min(count, _LONG_LIST) << 4 | kind])
    return b"".join((head, varint(count) if count >= _LONG_LIST else b"", *items))
