"""Parquet footers as bytes: taken apart into row groups, and put together with fewer of them.

A footer is a Thrift structure in the compact protocol (Parquet format, `FileMetaData`). Arrow
reads footers, but cannot write one that names some of a file's row groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack, unpack

MAGIC = b"PAR1"
TAIL_BYTES = 8
_NUM_ROWS, _ROW_GROUPS = 3, 4
_BOOLEANS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 7, 8, (9, 10), 11, 12
_BYTE = 3


@dataclass(frozen=True, slots=True)
class FooterParts:
    """A footer as it was written: what comes before the number of rows, between that and
    the row groups' list, each row group, and what follows."""

    before_rows: bytes
    row_groups: tuple[bytes, ...]
    after: bytes

    def with_row_groups(self, chosen: Sequence[int], rows: int) -> bytes:
        """The footer, with its length and magic, of a file of these row groups only."""
        count = len(chosen)
        listed = bytes([count << 4 | _STRUCT]) if count < 15 else _long_list(count)
        footer = b"".join(
            (
                self.before_rows,
                _varint(rows << 1),  # zigzag; never negative
                bytes([1 << 4 | _LISTS[0]]),  # the field that follows the number of rows
                listed,
                *(self.row_groups[i] for i in chosen),
                self.after,
            )
        )
        return footer + pack("<I", len(footer)) + MAGIC


def footer_length(tail: bytes) -> int:
    """The footer's length, by a file's last bytes. ValueError if it is no Parquet file."""
    if len(tail) < TAIL_BYTES or tail[-4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    (length,) = unpack("<I", tail[-8:-4])
    return int(length)


def take_apart(footer: bytes) -> FooterParts:
    """The parts of a footer, given without its length and magic. ValueError if it is torn."""
    reader = _Reader(footer)
    before_rows: int | None = None
    field = 0
    try:
        while (kind := reader.byte()) != 0:
            field = field + (kind >> 4) if kind >> 4 else reader.zigzag()
            if field == _NUM_ROWS:
                before_rows = reader.at
            if field == _ROW_GROUPS and before_rows is not None:
                groups = reader.list_items()
                return FooterParts(footer[:before_rows], groups, footer[reader.at :])
            reader.skip(kind & 15)
    except (IndexError, RecursionError) as error:
        raise ValueError("its footer is torn") from error
    raise ValueError("its footer has no row groups")


class _Reader:
    """Walks over values of the compact protocol without looking at them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def list_items(self) -> tuple[bytes, ...]:
        """The bytes of each item."""
        head = self.byte()
        count = self._counted(head >> 4 if head >> 4 < 15 else self.varint())
        items = []
        for _ in range(count):
            start = self.at
            self.skip(head & 15, is_item=True)
            items.append(self._data[start : self.at])
        if self.at > len(self._data):
            raise IndexError
        return tuple(items)

    def skip(self, kind: int, is_item: bool = False) -> None:
        """Passes over a value. A field's boolean is in its type, a list's is a byte."""
        if kind in _BOOLEANS:
            self.at += int(is_item)
        elif kind == _BYTE:
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            length = self.varint()
            self.at += length
        elif kind in _LISTS:
            self.list_items()
        elif kind == _MAP:
            self._skip_map()
        elif kind == _STRUCT:
            self._skip_struct()
        else:
            self.varint()

    def _counted(self, items: int) -> int:
        """The number of items that follow. Each takes a byte at least, so a torn footer cannot
        make anybody count for ever."""
        if items > len(self._data) - self.at:
            raise IndexError
        return items

    def _skip_map(self) -> None:
        count = self._counted(self.varint())
        kinds = self.byte() if count else 0
        for _ in range(count):
            self.skip(kinds >> 4, is_item=True)
            self.skip(kinds & 15, is_item=True)

    def _skip_struct(self) -> None:
        while (kind := self.byte()) != 0:
            if not kind >> 4:
                self.varint()
            self.skip(kind & 15)


def _long_list(count: int) -> bytes:
    return bytes([15 << 4 | _STRUCT]) + _varint(count)


def _varint(number: int) -> bytes:
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
