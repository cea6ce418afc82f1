"""The sizes in the messages of an Arrow stream, read from their metadata, before they are decoded.

A message is a flatbuffer with the metadata, then a body of buffers. Readers trust the metadata:
they allocate the sizes that it names, and parts of a flatbuffer may be shared, so that a small one
unfolds into many fields or long names. The framing is that of the Arrow columnar format, "IPC
streaming format", without that of versions before 0.15.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import BinaryIO

_CONTINUATION = 0xFFFF_FFFF
_METADATA_BYTES_MAX = 16 * 1024**2
_FIELDS_MAX = 20_000
_DEPTH_MAX = 16
# Of names and other texts in the metadata of one message.
_TEXT_BYTES_MAX = 16 * 1024**2
# A compressed buffer begins with the length of its content, or with this if it is stored.
_LENGTH = struct.Struct("<q")
_STORED = -1


class FramingError(Exception):
    """The content is not a stream of Arrow, or exceeds the limits of its metadata."""


class MessageKind(Enum):
    """The kinds of messages of a stream, by their numbers in the format."""

    SCHEMA = 1
    DICTIONARY = 2
    BATCH = 3


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The sizes of a message.

    `cells` counts the values of all columns, also those within lists. `bytes` are those of all
    buffers without compression. `dictionary` and `is_delta` are those of a dictionary.
    """

    kind: MessageKind
    rows: int = 0
    cells: int = 0
    bytes: int = 0
    is_compressed: bool = False
    dictionary: int = 0
    is_delta: bool = False


def read_message_sizes(content: BinaryIO) -> Iterator[MessageSize]:
    """Yields the sizes of each message, before its body is read.

    `FramingError` if the content is not a stream of Arrow, or ends within a message.
    """
    end = content.seek(0, io.SEEK_END)
    position = content.seek(0)
    while position < end:
        prefix = content.read(8)
        if len(prefix) < 8 or int.from_bytes(prefix[:4], "little") != _CONTINUATION:
            raise FramingError("no message begins where one is expected")
        length = int.from_bytes(prefix[4:], "little", signed=True)
        if not length:
            return
        if not 0 < length <= _METADATA_BYTES_MAX:
            raise FramingError(f"metadata of {length:,} bytes")
        body = position + len(prefix) + length
        metadata = content.read(length)
        try:
            size, body_length = _read_message(metadata, content, body, end)
        except (struct.error, IndexError, ValueError) as error:
            raise FramingError(f"damaged metadata: {error}") from error
        position = body + body_length
        yield size
        content.seek(position)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a flatbuffer, whose members are found by number."""

    data: bytes
    place: int

    def member(self, number: int) -> int | None:
        """Returns the place of a member; None if it has its default."""
        fields = self.place - self._int("<i", self.place)
        entry = 4 + 2 * number
        if fields < 0 or entry >= self._int("<H", fields):
            return None
        offset = self._int("<H", fields + entry)
        return self.place + offset if offset else None

    def number(self, number: int, form: str) -> int:
        """Returns an integer, 0 by default."""
        position = self.member(number)
        return 0 if position is None else self._int(form, position)

    def table(self, number: int) -> "_Table | None":
        """Returns a table within the table."""
        position = self.member(number)
        return None if position is None else _Table(self.data, self._follow(position))

    def vector(self, number: int) -> tuple[int, int]:
        """Returns the place and the length of a vector or text."""
        position = self.member(number)
        if position is None:
            return 0, 0
        start = self._follow(position)
        length = self._int("<I", start)
        if length > len(self.data):
            raise ValueError("a vector is longer than its message")
        return start + 4, length

    def tables(self, number: int) -> Iterator["_Table"]:
        """Yields the tables of a vector."""
        start, length = self.vector(number)
        for position in range(start, start + 4 * length, 4):
            yield _Table(self.data, self._follow(position))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """Returns a vector of structs of two 64-bit integers."""
        start, length = self.vector(number)
        part = memoryview(self.data)[start : start + 16 * length]
        return [(first, second) for first, second in struct.iter_unpack("<qq", part)]

    def _follow(self, position: int) -> int:
        return position + self._int("<I", position)

    def _int(self, form: str, position: int) -> int:
        if position < 0:
            raise ValueError("an offset is negative")
        return int(struct.unpack_from(form, self.data, position)[0])


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The metadata of a message: the sizes that need no body, and the buffers of the others."""

    size: MessageSize
    body_length: int
    buffers: tuple[tuple[int, int], ...] = ()


def _read_message(
    metadata: bytes, content: BinaryIO, body: int, end: int
) -> tuple[MessageSize, int]:
    """Returns the sizes of a message, and the length of its body."""
    is_short = len(metadata) <= _REMEMBERED_BYTES_MAX
    message = _parse_remembered(metadata) if is_short else _parse(metadata)
    if not 0 <= message.body_length <= end - body:
        raise ValueError("the body ends within the message")
    is_compressed = message.size.is_compressed
    size = sum(_buffer_bytes(each, is_compressed, content, body) for each in message.buffers)
    return replace(message.size, bytes=size), message.body_length


def _parse(metadata: bytes) -> _Metadata:
    message = _Table(metadata, int.from_bytes(metadata[:4], "little"))
    kind, body_length = MessageKind(message.number(1, "<B")), message.number(3, "<q")
    header = message.table(2)
    if header is None:
        raise ValueError("a message without a header")
    _Texts().count(message, 4)
    if kind is MessageKind.SCHEMA:
        _check_schema(header)
        return _Metadata(MessageSize(kind), body_length)
    batch = header if kind is MessageKind.BATCH else header.table(1)
    if batch is None:
        raise ValueError("a dictionary without values")
    rows, nodes, buffers = batch.number(0, "<q"), batch.pairs(1), batch.pairs(2)
    if rows < 0 or any(length < 0 for length, _ in nodes):
        raise ValueError("a negative number of rows")
    size = MessageSize(
        kind, rows, sum(length for length, _ in nodes), is_compressed=batch.member(3) is not None
    )
    if kind is MessageKind.DICTIONARY:
        is_delta = bool(header.number(2, "<B"))
        size = replace(size, dictionary=header.number(0, "<q"), is_delta=is_delta)
    return _Metadata(size, body_length, tuple(buffers))


# Callers send streams of the same schema, often with as many rows.
_parse_remembered = lru_cache(maxsize=256)(_parse)
_REMEMBERED_BYTES_MAX = 16 * 1024


def _buffer_bytes(
    buffer: tuple[int, int], is_compressed: bool, content: BinaryIO, body: int
) -> int:
    """Returns the bytes of a buffer without compression."""
    offset, length = buffer
    if offset < 0 or length < 0:
        raise ValueError("a negative place of a buffer")
    if not is_compressed or not length:
        return length
    content.seek(body + offset)
    prefix = content.read(_LENGTH.size)
    size = int(_LENGTH.unpack(prefix)[0])
    if size < _STORED:
        raise ValueError("a negative length of a buffer")
    return length if size == _STORED else size


def _check_schema(schema: _Table) -> None:
    """Raises ValueError for a schema that unfolds into too many fields or texts."""
    texts = _Texts()
    texts.count(schema, 2)
    count = 0
    level = [schema]
    members = 1
    for _ in range(_DEPTH_MAX):
        fields = []
        for table in level:
            for each in table.tables(members):
                count += 1
                if count > _FIELDS_MAX:
                    raise ValueError(f"more than {_FIELDS_MAX:,} fields")
                texts.add(each.vector(0)[1])
                texts.count(each, 6)
                _check_type(each, texts)
                fields.append(each)
        level, members = fields, 5
        if not level:
            return
    raise ValueError(f"fields nested deeper than {_DEPTH_MAX} levels")


_TIMESTAMP, _UNION = 10, 14


def _check_type(field: _Table, texts: "_Texts") -> None:
    """Counts the time zone of a type. ValueError for a union, which no table has."""
    kind, details = field.number(2, "<B"), field.table(3)
    if kind == _UNION:
        raise ValueError("a field of a union type")
    if kind == _TIMESTAMP and details is not None:
        texts.add(details.vector(1)[1])


@dataclass(slots=True)
class _Texts:
    """Counts the texts of a message, which may be shared."""

    bytes: int = 0

    def add(self, length: int) -> None:
        self.bytes += length
        if self.bytes > _TEXT_BYTES_MAX:
            raise ValueError(f"names and texts of more than {_TEXT_BYTES_MAX:,} bytes")

    def count(self, table: _Table, number: int) -> None:
        """Adds the keys and values of custom metadata."""
        for pair in table.tables(number):
            self.add(8 + pair.vector(0)[1] + pair.vector(1)[1])
