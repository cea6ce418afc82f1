"""Structures of Thrift's compact protocol, as Parquet's footers, page indexes and page headers are.

A structure is read as a dict of its values by field number: integers, booleans, bytes, lists, and
dicts for structures. Doubles and maps, which Parquet's metadata lacks, are refused.
"""

from collections.abc import Sequence
from typing import Any

Structure = dict[int, Any]

BINARY, LIST, STRUCT = 8, 9, 12
INT32, INT64 = 5, 6
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
        if kind <= _FALSE:
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _read_value(data, at, kind)
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


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (4, INT32, INT64):
        return _read_integer(data, at)
    if kind == BINARY:
        length, at = read_varint(data, at)
        if length > len(data) - at:
            raise IndexError("a text is torn")
        return data[at : at + length], at + length
    if kind == STRUCT:
        return read_structure(data, at)
    if kind == LIST:
        return _read_list(data, at)
    if kind == 3:
        return data[at], at + 1
    raise ValueError(f"a value has the type {kind}")


def _read_list(data: bytes, at: int) -> tuple[list[Any], int]:
    count, kind, at = read_list_head(data, at)
    if kind <= _FALSE:
        return [byte == _TRUE for byte in data[at : at + count]], at + count
    items = []
    for _ in range(count):
        item, at = _read_value(data, at, kind)
        items.append(item)
    return items, at


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
