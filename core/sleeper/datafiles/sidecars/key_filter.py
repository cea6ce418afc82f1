"""The `.filter` sidecar: a filter that excludes keys which a file does not hold.

It is a split-block Bloom filter of Parquet's specification over the hashes of whole row keys. A
*block* is eight words of 32 bits. The upper half of a hash selects a block, the lower half one
bit in each word. A file of many keys has one such filter for each range of keys, because bits are
set fastest in a filter that fits the processor's cache, and the number of keys of a file is known
only at its end. docs/formats.md, "Filter sidecar", specifies the bytes. A filter never excludes a
key that the file holds.

The hash is xxhash64 as Spark defines it: seed 42, the hash of each field as the seed of the
next, text as UTF-8, numbers as little-endian bytes: 4 of IntType, DateType and BooleanType, 8 of
LongType, TimestampType and DecimalType. DataFusion's function for columns and `hash_key` for single
keys are equal. Hashes are unsigned.
"""

import bisect
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import xxhash

from sleeper.datafiles.sidecars.key_order import SHORT_NUMBERS, encode_key
from sleeper.errors import DataError
from sleeper.schema.model import Field, Key, KeyValue, Schema

HASH_NAME = "spark-xxhash64"
Hashes = npt.NDArray[np.uint64]

_SEED = 42


def hash_key(schema: Schema, key: Key) -> int:
    """Returns the hash of a key. UnicodeEncodeError for text that UTF-8 cannot encode."""
    seed = _SEED
    for field, value in zip(schema.row_keys, key, strict=True):
        seed = xxhash.xxh64_intdigest(_bytes(field, value), seed)
    return seed


def hash_keys(schema: Schema, keys: Sequence[Key]) -> Hashes:
    """Returns the hashes of keys, in order."""
    return np.fromiter((hash_key(schema, key) for key in keys), np.uint64, len(keys))


def _bytes(field: Field, value: KeyValue) -> bytes:
    if isinstance(value, int):
        return struct.pack("<i" if field.type in SHORT_NUMBERS else "<q", value)
    return value.encode() if isinstance(value, str) else value


# Magic, version, hash name, number of distinct keys, number of blocks (version 1) or of ranges
# (version 2). The checksum is the xxhash64 (seed 0) of the header and all that follows it.
_HEADER = struct.Struct("<8sI16sQI")
_CHECKSUM = struct.Struct("<Q")
# The number of blocks of a range, and the length of its start.
_RANGE = struct.Struct("<II")
_MAGIC = b"SLPRFLTR"
_ONE_RANGE, _MANY_RANGES = 1, 2
_HASH = HASH_NAME.encode().ljust(16, b"\0")
_BODY_AT = _HEADER.size + _CHECKSUM.size

BLOCK_BITS = 256
BLOCK_BYTES = 32
WORDS = 8
# https://github.com/apache/parquet-format/blob/master/BloomFilter.md
SALTS = np.array(
    [
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    ],
    np.uint32,
)
_HALF = np.uint64(32)
_TO_BIT = np.uint32(27)
_ONE = np.uint32(1)

Blocks = npt.NDArray[np.uint32]
"""Blocks of a Bloom filter as an array of shape (blocks, 8)."""


@dataclass(frozen=True, slots=True)
class HashedKey:
    """The hash of one key, and the bits that it has in a block, as a little-endian integer.

    `order` is its `encode_key`.
    """

    hash: int
    bits: int
    order: bytes


def hashed_key(schema: Schema, key: Key) -> HashedKey:
    """Returns a key for `KeyFilter.may_hold_key`. UnicodeEncodeError as of `hash_key`."""
    hashed = hash_key(schema, key)
    low, bits = hashed & 0xFFFF_FFFF, 0
    for shift, salt in _SHIFTED_SALTS:
        bits |= 1 << (shift + ((low * salt & 0xFFFF_FFFF) >> 27))
    return HashedKey(hashed, bits, encode_key(schema, key))


_SHIFTED_SALTS = tuple((32 * word, int(salt)) for word, salt in enumerate(SALTS))


@dataclass(frozen=True)
class HashedKeys:
    """Keys for `KeyFilter.may_hold`. Their hashes must be those of `hash_keys`."""

    schema: Schema
    keys: Sequence[Key]
    hashes: Hashes

    @cached_property
    def orders(self) -> list[bytes]:
        """The `encode_key` of each key."""
        return [encode_key(self.schema, key) for key in self.keys]

    def slice(self, within: slice) -> "HashedKeys":
        """Returns the keys at these places."""
        return HashedKeys(self.schema, self.keys[within], self.hashes[within])


def hashed_keys(schema: Schema, keys: Sequence[Key]) -> HashedKeys:
    """Returns keys for `KeyFilter.may_hold`. UnicodeEncodeError as of `hash_key`."""
    return HashedKeys(schema, keys, hash_keys(schema, keys))


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A Bloom filter for each range of keys, and the number of distinct keys.

    `starts` has, for each range but the first, the first `encode_key` that is in it.
    """

    ranges: tuple[Blocks, ...]
    keys: int
    starts: tuple[bytes, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of all blocks."""
        return sum(blocks.nbytes for blocks in self.ranges)

    def may_hold_key(self, key: HashedKey) -> bool:
        """Returns False if the file does not hold the key.

        For one key this takes a tenth of the time of `may_hold`.
        """
        blocks = self.ranges[bisect.bisect_right(self.starts, key.order) if self.starts else 0]
        position = (key.hash >> 32) * len(blocks) >> 32
        block = int.from_bytes(blocks[position].tobytes(), "little")
        return block & key.bits == key.bits

    def may_hold(self, keys: HashedKeys) -> npt.NDArray[np.bool_]:
        """Returns False for each key that the file does not hold."""
        if not self.starts:
            return _may_hold(self.ranges[0], keys.hashes)
        positions = np.array(
            [bisect.bisect_right(self.starts, order) for order in keys.orders], int
        )
        result = np.empty(len(positions), np.bool_)
        for position in np.unique(positions):
            is_here = positions == position
            result[is_here] = _may_hold(self.ranges[position], keys.hashes[is_here])
        return result

    def may_hold_ascending(
        self, hashes: Hashes, order_at: Callable[[int], bytes]
    ) -> npt.NDArray[np.bool_]:
        """Returns False for each of ascending keys that the file does not hold.

        `order_at` returns the `encode_key` of the key at a place. It is called for few of them.
        """
        rows = range(len(hashes))
        cuts = [bisect.bisect_left(rows, start, key=order_at) for start in self.starts]
        parts = zip(self.ranges, [0, *cuts], [*cuts, len(hashes)], strict=True)
        return np.concatenate([_may_hold(blocks, hashes[low:high]) for blocks, low, high in parts])

    def to_bytes(self) -> bytes:
        """Returns the sidecar's content."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes | memoryview]:
        """Returns the sidecar's content in parts, of which the blocks are not copied."""
        blocks = [np.ascontiguousarray(each).data.cast("B") for each in self.ranges]
        body: list[bytes | memoryview]
        if self.starts:
            version, count = _MANY_RANGES, len(self.ranges)
            body = [self._index(), *blocks]
        else:
            version, count = _ONE_RANGE, len(self.ranges[0])
            body = [*blocks]
        header = _HEADER.pack(_MAGIC, version, _HASH, self.keys, count)
        return [header + _CHECKSUM.pack(_checksum([header, *body])), *body]

    def _index(self) -> bytes:
        starts = (b"", *self.starts)
        sizes = b"".join(
            _RANGE.pack(len(blocks), len(start))
            for blocks, start in zip(self.ranges, starts, strict=True)
        )
        index = sizes + b"".join(starts)
        return index + bytes(-(_BODY_AT + len(index)) % BLOCK_BYTES)


def key_filter_from_bytes(content: bytes | memoryview, path: str) -> KeyFilter:
    """Parses a sidecar. DataError names the path if it is torn, damaged or of another version."""
    if len(content) < _BODY_AT:
        raise DataError(
            f"sidecar {path} is damaged: {len(content)} bytes are too short for a key filter"
        )
    magic, version, hash_name, keys, count = _HEADER.unpack_from(content)
    is_known = version in (_ONE_RANGE, _MANY_RANGES)
    if (magic, hash_name) != (_MAGIC, _HASH) or not is_known:
        raise DataError(
            f"sidecar {path} is not a key filter of version {_ONE_RANGE} or {_MANY_RANGES} by"
            f" {HASH_NAME}: {magic!r}, version {version}, {hash_name!r}"
        )
    body = memoryview(content)[_BODY_AT:]
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    if checksum != _checksum([content[: _HEADER.size], body]):
        raise DataError(f"sidecar {path} is damaged: its checksum does not fit")
    try:
        if version == _ONE_RANGE:
            return KeyFilter((_blocks(body, count),), keys)
        return _parse_ranges(content, count, keys)
    except (ValueError, struct.error) as error:
        raise DataError(f"sidecar {path} is damaged: {error}") from error


def _parse_ranges(content: bytes | memoryview, count: int, keys: int) -> KeyFilter:
    sizes = [
        _RANGE.unpack_from(content, _BODY_AT + _RANGE.size * position) for position in range(count)
    ]
    position = _BODY_AT + _RANGE.size * count
    starts = []
    for _, length in sizes:
        starts.append(bytes(content[position : position + length]))
        position += length
    position += -position % BLOCK_BYTES
    body = memoryview(content)
    ranges = []
    for blocks, _ in sizes:
        end = position + blocks * BLOCK_BYTES
        ranges.append(_blocks(body[position:end], blocks))
        position = end
    if position != len(content) or not ranges:
        raise ValueError(f"{len(content)} bytes for {position} of {count} ranges")
    return KeyFilter(tuple(ranges), keys, tuple(starts[1:]))


def _blocks(body: memoryview, count: int) -> Blocks:
    if not count or len(body) != count * BLOCK_BYTES:
        raise ValueError(f"{len(body)} bytes for {count} blocks")
    return np.frombuffer(body, "<u4").reshape(count, WORDS)


def _may_hold(blocks: Blocks, hashes: Hashes) -> npt.NDArray[np.bool_]:
    masks = _ONE << ((hashes.astype(np.uint32)[:, None] * SALTS) >> _TO_BIT)
    value = blocks[block_indexes(hashes, len(blocks))]
    result: npt.NDArray[np.bool_] = ((value & masks) == masks).all(axis=1)
    return result


def block_indexes(hashes: Hashes, blocks: int) -> Hashes:
    """Returns the place of each hash's block among `blocks` blocks. Ascends with the hashes."""
    return ((hashes >> _HALF) * np.uint64(blocks)) >> _HALF


def _checksum(parts: Iterable[bytes | memoryview]) -> int:
    digest = xxhash.xxh64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()
