"""Bounds of row keys, as Iceberg's manifests store them (Iceberg's specification, appendix D)."""

import struct

from sleeper.schema.model import DecimalType, Field, KeyValue, PrimitiveType

# Longer bounds make manifests large. They may be truncated if they stay bounds.
_BYTES_MAX = 64

_FORMATS = {
    PrimitiveType.INT: "<i",
    PrimitiveType.LONG: "<q",
    PrimitiveType.TIMESTAMP: "<q",
    PrimitiveType.DATE: "<i",
    PrimitiveType.BOOLEAN: "<?",
}


def lower_bound(field: Field, value: KeyValue) -> bytes:
    """Returns a value that no value of the field in a file is below."""
    if isinstance(value, int):
        return _number(field, value)
    if isinstance(value, bytes):
        return value[:_BYTES_MAX]
    return _whole_characters(value.encode())


def upper_bound(field: Field, value: KeyValue) -> bytes | None:
    """Returns a value that no value of the field in a file is above; None if it is too long."""
    if isinstance(value, int):
        return _number(field, value)
    content = value.encode() if isinstance(value, str) else value
    return content if len(content) <= _BYTES_MAX else None


def _number(field: Field, value: int) -> bytes:
    if isinstance(field.type, DecimalType):
        # Two's complement in the fewest bytes, the most significant first.
        size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
        return value.to_bytes(size, "big", signed=True)
    assert isinstance(field.type, PrimitiveType)
    return struct.pack(_FORMATS[field.type], value)


def _whole_characters(text: bytes) -> bytes:
    return text[:_BYTES_MAX].decode(errors="ignore").encode()
