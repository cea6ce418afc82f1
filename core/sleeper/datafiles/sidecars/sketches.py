"""The `.sketches` sidecar: where the keys of a file lie.

One classic DataSketches quantiles items sketch (k 1024) per row key field, in schema
order, each after its length as a big-endian int32 (docs/formats.md, "Sketches sidecar").
Sketches are built from a sample of the file, so a sketch gives shares of the file, not
counts: a merge of several sketches weighs them by their files' rows. This
module does not import Arrow.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datasketches import PyObjectSerDe, quantiles_items_sketch

from sleeper.errors import DataError
from sleeper.partitions.region import Range
from sleeper.schema.model import INT_RANGES, FieldType, KeyValue, PrimitiveType, Schema, precedes

_K = 1024
_STEPS = 1024


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
        return struct.pack("<i", len(item)) + item

    def from_bytes(self, data: bytes, offset: int) -> tuple[bytes, int]:
        (length,) = struct.unpack_from("<i", data, offset)
        start = offset + 4
        if length < 0 or start + length > len(data):
            raise IndexError(f"length {length} at {offset} is outside the sketch")
        return bytes(data[start : start + length]), 4 + length


class _TextSerDe(_BytesSerDe):
    # The library's own string SerDe counts characters where it must count UTF-8 bytes.
    def get_size(self, item: str) -> int:  # type: ignore[override]
        return 4 + len(item.encode())

    def to_bytes(self, item: str) -> bytes:  # type: ignore[override]
        return super().to_bytes(item.encode())

    def from_bytes(self, data: bytes, offset: int) -> tuple[str, int]:  # type: ignore[override]
        raw, length = super().from_bytes(data, offset)
        return raw.decode(), length


def _serde(field_type: FieldType) -> PyObjectSerDe:
    if field_type in INT_RANGES:
        return _LongSerDe()
    return _TextSerDe() if field_type is PrimitiveType.STRING else _BytesSerDe()


@dataclass(frozen=True, slots=True)
class KeySketch:
    """Where the values of one key field of a file lie."""

    sketch: quantiles_items_sketch

    def share(self, within: Range) -> float:
        """The estimated share of the file's rows in the range, 0 to 1."""
        if self.sketch.is_empty():
            return 0.0
        below_max = 1.0 if within.max is None else self.sketch.get_rank(within.max)
        return max(0.0, float(below_max - self.sketch.get_rank(within.min)))

    def points(self, within: Range) -> list[KeyValue]:
        """Values of the range at ranks that are evenly spaced over the file, ascending."""
        if self.sketch.is_empty():
            return []
        ranks = [(i + 0.5) / _STEPS for i in range(_STEPS)]
        return [v for v in self.sketch.get_quantiles(ranks) if within.contains(v)]


def sketches_of(samples: Iterable[Sequence[KeyValue]]) -> list[KeySketch]:
    """One sketch per row key field, from a sample of its values each."""
    result = []
    for values in samples:
        sketch = quantiles_items_sketch(_K)
        for value in values:
            sketch.update(value)
        result.append(KeySketch(sketch))
    return result


def sketches_to_bytes(schema: Schema, sketches: Sequence[KeySketch]) -> bytes:
    """The sidecar's content."""
    parts = []
    for field, sketch in zip(schema.row_keys, sketches, strict=True):
        body = sketch.sketch.serialize(_serde(field.type))
        parts += [struct.pack(">i", len(body)), body]
    return b"".join(parts)


def sketches_from_bytes(schema: Schema, content: bytes, path: str) -> list[KeySketch]:
    """The sketches of a sidecar; DataError names the path if it is torn or of another schema."""
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
    """The values at the ranks (0 to 1, ascending) of all points, each of some weight."""
    ordered = sorted(points, key=lambda p: p[0])
    total = sum(weight for _, weight in ordered)
    found: list[KeyValue] = []
    passed, place = 0.0, 0
    for rank in ranks:
        while place < len(ordered) - 1 and passed + ordered[place][1] <= rank * total:
            passed += ordered[place][1]
            place += 1
        found.append(ordered[place][0])
    return found


def distinct_inside(values: Iterable[KeyValue], within: Range) -> list[KeyValue]:
    """The values that cut the range: ascending, each once, none at its lower end."""
    kept: list[KeyValue] = []
    for value in values:
        if (
            within.contains(value)
            and value != within.min
            and (not kept or precedes(kept[-1], value))
        ):
            kept.append(value)
    return kept
