"""Parquet footers as bytes: footers of some row groups, and statistics of columns.

A footer is a Thrift structure in the compact protocol (Parquet format, `FileMetaData`). Arrow
cannot write a footer of some of a file's row groups (apache/arrow#35638), and reading statistics
that contradict the schema aborts the process with a C++ exception (apache/arrow#46724 reports
the unchecked cast). So this module walks the bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import pack, unpack

from sleeper.datafiles.engine.thrift import varint

MAGIC = b"PAR1"
TAIL_BYTES = 8
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _METADATA, _TYPE, _PATH, _STATISTICS = 1, 3, 1, 3, 12
_OLD_MAX, _OLD_MIN, _NULL_COUNT, _MAX, _MIN = 1, 2, 3, 5, 6
_VARINT_BYTES_MAX = 10
_BOOLEANS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 7, 8, (9, 10), 11, 12
_BYTE = 3
_INTEGERS = (4, 5, 6)
INT32, INT64 = 1, 2
"""Physical types, as `ColumnStatistics` names them."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of a column in a row group; None for missing ones.

    `path` is the column's name followed by the names within its lists and maps. Bounds are the
    bytes in the file: little-endian integers, or plain bytes.
    """

    path: tuple[str, ...]
    physical_type: int
    null_count: int | None = None
    low: bytes | None = None
    high: bytes | None = None


@dataclass(frozen=True, slots=True)
class FooterParts:
    """The bytes of a footer before the number of rows, of each row group, and after them."""

    before_rows: bytes
    row_groups: tuple[bytes, ...]
    after: bytes

    def with_row_groups(self, chosen: Sequence[int], rows: int) -> bytes:
        """Returns the footer, length and magic of a file of only these row groups."""
        count = len(chosen)
        short = bytes([min(count, 15) << 4 | _STRUCT])
        list_head = short if count < 15 else short + varint(count)
        footer = b"".join(
            (
                self.before_rows,
                varint(rows << 1),  # zigzag; never negative
                bytes([1 << 4 | _LISTS[0]]),  # the field that follows the number of rows
                list_head,
                *(self.row_groups[i] for i in chosen),
                self.after,
            )
        )
        return footer + pack("<I", len(footer)) + MAGIC


def footer_length(tail: bytes) -> int:
    """Returns the footer's length from a file's last bytes. ValueError if it is not Parquet."""
    if len(tail) < TAIL_BYTES or tail[-4:] != MAGIC:
        raise ValueError("it has no Parquet footer")
    (length,) = unpack("<I", tail[-8:-4])
    return int(length)


def split_footer(footer: bytes) -> FooterParts:
    """Splits a footer without length and magic. ValueError if it is torn."""
    reader = _Reader(footer)
    before_rows: int | None = None
    try:
        for field, kind in reader.fields():
            if field == _NUM_ROWS:
                before_rows = reader.at
            if field == _ROW_GROUPS and before_rows is not None:
                groups = reader.list_items()
                return FooterParts(footer[:before_rows], groups, footer[reader.at :])
            reader.skip(kind)
    except (IndexError, RecursionError) as error:
        raise ValueError("its footer is damaged") from error
    raise ValueError("its footer has no row groups")


def column_statistics(footer: bytes) -> Iterator[ColumnStatistics]:
    """Yields the statistics of each column of each row group in a footer without length and magic.

    ValueError if it is torn.
    """
    reader = _Reader(footer)
    try:
        for field, kind in reader.fields():
            if field == _ROW_GROUPS and kind in _LISTS:
                for _ in range(reader.list_length(_STRUCT)):
                    yield from _column_chunks(reader)
            else:
                reader.skip(kind)
    except (IndexError, RecursionError) as error:
        raise ValueError("its footer is damaged") from error


def _column_chunks(reader: "_Reader") -> Iterator[ColumnStatistics]:
    for field, kind in reader.fields():
        if field == _COLUMNS and kind in _LISTS:
            for _ in range(reader.list_length(_STRUCT)):
                yield _column_chunk(reader)
        else:
            reader.skip(kind)


def _column_chunk(reader: "_Reader") -> ColumnStatistics:
    statistics: ColumnStatistics | None = None
    for field, kind in reader.fields():
        if field == _METADATA and kind == _STRUCT:
            statistics = _column_metadata(reader)
        else:
            reader.skip(kind)
    if statistics is None:
        raise ValueError("its footer has a column without metadata")
    return statistics


def _column_metadata(reader: "_Reader") -> ColumnStatistics:
    path: tuple[str, ...] = ()
    physical_type = -1
    statistics: dict[int, int | bytes] = {}
    for field, kind in reader.fields():
        if field == _TYPE and kind in _INTEGERS:
            physical_type = reader.zigzag()
        elif field == _PATH and kind in _LISTS:
            names = [reader.binary() for _ in range(reader.list_length(_BINARY))]
            path = tuple(name.decode() for name in names)
        elif field == _STATISTICS and kind == _STRUCT:
            statistics = _statistics(reader)
        else:
            reader.skip(kind)
    nulls = statistics.get(_NULL_COUNT)
    low = statistics.get(_MIN, statistics.get(_OLD_MIN))
    high = statistics.get(_MAX, statistics.get(_OLD_MAX))
    return ColumnStatistics(
        path,
        physical_type,
        nulls if isinstance(nulls, int) else None,
        low if isinstance(low, bytes) else None,
        high if isinstance(high, bytes) else None,
    )


def _statistics(reader: "_Reader") -> dict[int, int | bytes]:
    statistics: dict[int, int | bytes] = {}
    for field, kind in reader.fields():
        if kind in _INTEGERS:
            statistics[field] = reader.zigzag()
        elif kind == _BINARY:
            statistics[field] = reader.binary()
        else:
            reader.skip(kind)
    return statistics


class _Reader:
    """A cursor over values of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yields number and type of each field of a structure. The caller reads the value."""
        field = 0
        while (kind := self.byte()) != 0:
            field = field + (kind >> 4) if kind >> 4 else self.zigzag()
            yield field, kind & 15

    def varint(self) -> int:
        number = self.byte()
        if number < 128:
            return number
        number &= 127
        for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise IndexError

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def binary(self) -> bytes:
        length = self.varint()
        start, self.at = self.at, self.at + length
        if self.at > len(self._data):
            raise IndexError
        return self._data[start : self.at]

    def list_length(self, kind: int) -> int:
        """Returns the number of items, which must be of the type."""
        count, item_kind = self._list_head()
        if count and item_kind != kind:
            raise IndexError
        return count

    def list_items(self) -> tuple[bytes, ...]:
        """Returns the bytes of each item."""
        count, kind = self._list_head()
        items = []
        for _ in range(count):
            start = self.at
            self.skip(kind, is_item=True)
            items.append(self._data[start : self.at])
        if self.at > len(self._data):
            raise IndexError
        return tuple(items)

    def skip(self, kind: int, is_item: bool = False) -> None:
        """Skips a value. A boolean field is encoded in its type, a boolean item is a byte."""
        if kind in _INTEGERS:
            self.varint()
        elif kind == _BINARY:
            self.binary()
        elif kind in _BOOLEANS:
            self.at += int(is_item)
        elif kind == _BYTE:
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind in _LISTS:
            self.list_items()
        elif kind == _MAP:
            self._skip_map()
        elif kind == _STRUCT:
            self._skip_struct()
        else:
            self.varint()

    def _list_head(self) -> tuple[int, int]:
        head = self.byte()
        return self._check_count(head >> 4 if head >> 4 < 15 else self.varint()), head & 15

    def _check_count(self, items: int) -> int:
        """Returns the count. Each item takes at least a byte, so a larger count is torn."""
        if items > len(self._data) - self.at:
            raise IndexError
        return items

    def _skip_map(self) -> None:
        count = self._check_count(self.varint())
        kinds = self.byte() if count else 0
        for _ in range(count):
            self.skip(kinds >> 4, is_item=True)
            self.skip(kinds & 15, is_item=True)

    def _skip_struct(self) -> None:
        for _, kind in self.fields():
            self.skip(kind)
