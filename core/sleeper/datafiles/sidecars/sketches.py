"""The `.sketches` sidecar: the distribution of a file's keys.

It holds one classic DataSketches quantiles items sketch (k 1024) per row key field, in schema
order, each after its length as a big-endian int32 (docs/formats.md, "Sketches sidecar"). Sketches
are built from a sample of the file and give shares of the file, so a combination of sketches
weights them by their files' rows. This module does not import Arrow.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datasketches import PyObjectSerDe, quantiles_items_sketch

from sleeper.errors import DataError
from sleeper.partitions.region import Range
from sleeper.schema.model import (
    FieldType,
    KeyValue,
    PrimitiveType,
    Schema,
    key_number_range,
    precedes,
)

_K = 1024
_STEPS = 1024
_LENGTH = struct.Struct("<i")


class _LongSerDe(PyObjectSerDe):  # type: ignore[misc]
    def get_size(self, item: int) -> int:  # noqa: ARG002
        return 8

    def to_bytes(self, item: int) -> bytes:
        return struct.pack("<q", item)

    def from_bytes(self, data: bytes, offset: int) -> tuple[int, int]:
        return struct.unpack_from("<q", data, offset)[0], 8


class _BytesSerDe(PyObjectSerDe):  # type: ignore[misc]
    def get_size(self, item: bytes) -> int:
        return 4 + len(item)

    def to_bytes(self, item: bytes) -> bytes:
        return _LENGTH.pack(len(item)) + item

    def from_bytes(self, data: bytes, offset: int) -> tuple[bytes, int]:
        (length,) = struct.unpack_from("<i", data, offset)
        start = offset + 4
        if length < 0 or start + length > len(data):
            raise IndexError(f"length {length} at {offset} is outside the sketch")
        return bytes(data[start : start + length]), 4 + length


class _TextSerDe(_BytesSerDe):
    # The library's PyStringsSerDe encodes characters, not UTF-8 bytes, and fails on text beyond
    # Latin-1. No upstream issue found.
    def get_size(self, item: str) -> int:  # type: ignore[override]
        return 4 + (len(item) if item.isascii() else len(item.encode()))

    def to_bytes(self, item: str) -> bytes:  # type: ignore[override]
        encoded = item.encode()
        return _LENGTH.pack(len(encoded)) + encoded

    def from_bytes(self, data: bytes, offset: int) -> tuple[str, int]:  # type: ignore[override]
        raw, length = super().from_bytes(data, offset)
        return raw.decode(), length


def _serde(field_type: FieldType) -> PyObjectSerDe:
    if key_number_range(field_type) is not None:
        return _LongSerDe()
    return _TextSerDe() if field_type is PrimitiveType.STRING else _BytesSerDe()


@dataclass(frozen=True, slots=True)
class KeySketch:
    """The distribution of one key field in a file."""

    sketch: quantiles_items_sketch

    def share(self, within: Range) -> float:
        """Returns the estimated share of the file's rows in the range, 0 to 1."""
        if self.sketch.is_empty():
            return 0.0
        below_max = 1.0 if within.max is None else self.sketch.get_rank(within.max)
        return max(0.0, float(below_max - self.sketch.get_rank(within.min)))

    def points(self, within: Range) -> list[KeyValue]:
        """Returns the values at evenly spaced ranks within the range, ascending."""
        if self.sketch.is_empty():
            return []
        ranks = [(i + 0.5) / _STEPS for i in range(_STEPS)]
        return [v for v in self.sketch.get_quantiles(ranks) if within.contains(v)]


def build_sketches(samples: Iterable[Sequence[KeyValue]]) -> list[KeySketch]:
    """Returns one sketch per row key field from samples of the fields."""
    result = []
    for values in samples:
        sketch = quantiles_items_sketch(_K)
        for value in values:
            sketch.update(value)
        result.append(KeySketch(sketch))
    return result


def sketches_to_bytes(schema: Schema, sketches: Sequence[KeySketch]) -> bytes:
    """Returns the sidecar's content."""
    parts = []
    for field, sketch in zip(schema.row_keys, sketches, strict=True):
        body = sketch.sketch.serialize(_serde(field.type))
        parts += [struct.pack(">i", len(body)), body]
    return b"".join(parts)


def sketches_from_bytes(schema: Schema, content: bytes, path: str) -> list[KeySketch]:
    """Parses a sidecar. DataError names the path if it is torn or of another schema."""
    sketches, offset = [], 0
    try:
        for field in schema.row_keys:
            (length,) = struct.unpack_from(">i", content, offset)
            body = content[offset + 4 : offset + 4 + length]
            if length < 0 or len(body) != length:
                raise ValueError(f"a sketch of {length} bytes does not fit")
            sketch = quantiles_items_sketch.deserialize(body, _serde(field.type))
            sketches.append(KeySketch(sketch))
            offset += 4 + length
    except (struct.error, ValueError, IndexError, RuntimeError, TypeError) as error:
        raise DataError(f"sidecar {path} is not a sketch of the table's keys: {error}") from error
    return sketches


def weighted_quantiles(
    points: Iterable[tuple[KeyValue, float]], ranks: Sequence[float]
) -> list[KeyValue]:
    """Returns the values at the ranks (0 to 1, ascending) of weighted points."""
    ordered = sorted(points, key=lambda p: p[0])
    total = sum(weight for _, weight in ordered)
    quantiles: list[KeyValue] = []
    passed, position = 0.0, 0
    for rank in ranks:
        while position < len(ordered) - 1 and passed + ordered[position][1] <= rank * total:
            passed += ordered[position][1]
            position += 1
        quantiles.append(ordered[position][0])
    return quantiles


def distinct_inside(values: Iterable[KeyValue], within: Range) -> list[KeyValue]:
    """Returns the distinct values inside the range, above its lower end, ascending."""
    kept: list[KeyValue] = []
    for value in values:
        if (
            within.contains(value)
            and value != within.min
            and (not kept or precedes(kept[-1], value))
        ):
            kept.append(value)
    return kept
