"""Row keys as bytes that sort as the keys do, for comparisons without their schema.

Numbers, dates and booleans of 4 bytes, and other numbers of 8 bytes, are big-endian and unsigned:
zero is 2**31 or 2**63. Text (UTF-8) and byte
arrays end with two zero bytes, and a zero byte in them is followed by 0xFF, so that a value sorts
before its continuations whatever field comes next.
"""

import struct
from collections.abc import Sequence

import pyarrow as pa

from sleeper.datafiles.key_values import key_value
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema

SHORT_NUMBERS = {PrimitiveType.INT, PrimitiveType.DATE, PrimitiveType.BOOLEAN}
"""Types of keys whose numbers are 4 bytes in key filters."""
_INT = struct.Struct(">I")
_LONG = struct.Struct(">Q")


def encode_key(schema: Schema, key: Sequence[KeyValue]) -> bytes:
    """Returns the bytes of a row key. UnicodeEncodeError for text that UTF-8 cannot encode."""
    return b"".join(map(_encode, schema.row_keys, key))


def encode_row(schema: Schema, rows: pa.RecordBatch, position: int) -> bytes:
    """Returns the bytes of the row key at a place. Columns go by name."""
    return encode_key(schema, [key_value(rows.column(f.name)[position]) for f in schema.row_keys])


def shortest_start(previous: bytes, first: bytes) -> bytes:
    """Returns the shortest beginning of `first` that sorts after `previous`, which is less."""
    for index, (left, right) in enumerate(zip(previous, first, strict=False)):
        if left != right:
            return first[: index + 1]
    return first[: len(previous) + 1]


def _encode(field: Field, value: KeyValue) -> bytes:
    if isinstance(value, int):
        if field.type in SHORT_NUMBERS:
            return _INT.pack(value + 2**31)
        return _LONG.pack(value + 2**63)
    content = value.encode() if isinstance(value, str) else value
    return content.replace(b"\0", b"\0\xff") + b"\0\0"
