"""The `.filter` sidecar: a filter that excludes keys which a file does not hold.

It is a split-block Bloom filter of Parquet's specification over the hashes of whole row keys. A
*block* is eight words of 32 bits. The upper half of a hash selects a block, the lower half one
bit in each word. docs/formats.md, "Filter sidecar", specifies the bytes. A filter never excludes
a key that the file holds.

The hash is xxhash64 as Spark defines it: seed 42, the hash of each field as the seed of the
next, text as UTF-8, numbers as 4 or 8 little-endian bytes. DataFusion's function for columns and
`hash_key` for single keys are equal. Hashes are unsigned.
"""

import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from datafusion import SessionConfig, SessionContext
from datafusion.expr import Expr

from sleeper.datafiles.engine.session import new_table_name
from sleeper.errors import DataError
from sleeper.schema.model import Field, Key, KeyValue, PrimitiveType, Schema

HASH_NAME = "spark-xxhash64"
Hashes = npt.NDArray[np.uint64]

_SEED = 42


class _ThreadSession(threading.local):
    """One session per thread, because concurrent registrations in a session conflict."""

    def __init__(self) -> None:
        self.session = SessionContext(SessionConfig().with_target_partitions(1))
        self.session.enable_spark_functions()


_of_thread = _ThreadSession()


def hash_key(schema: Schema, key: Key) -> int:
    """Returns the hash of a key. UnicodeEncodeError for text that UTF-8 cannot encode."""
    seed = _SEED
    for field, value in zip(schema.row_keys, key, strict=True):
        seed = xxhash.xxh64_intdigest(_bytes(field, value), seed)
    return seed


def hash_keys(schema: Schema, keys: Sequence[Key]) -> Hashes:
    """Returns the hashes of keys, in order."""
    return np.fromiter((hash_key(schema, key) for key in keys), np.uint64, len(keys))


def hash_expression(columns: Sequence[Expr]) -> Expr:
    """Returns the hash of each row's key as an expression, signed with the same bits."""
    return _of_thread.session.udf("xxhash64")(*columns)


def hash_rows(schema: Schema, batches: Iterable[pa.RecordBatch]) -> Hashes:
    """Returns the hash of each row's key, in order. The batches have the table's types."""
    names = [f"key{place}" for place in range(len(schema.row_keys))]
    keys = [
        pa.RecordBatch.from_arrays([batch.column(f.name) for f in schema.row_keys], names)
        for batch in batches
        if batch.num_rows
    ]
    if not keys:
        return np.empty(0, np.uint64)
    session, table = _of_thread.session, new_table_name()
    session.register_record_batches(table, [keys])
    try:
        frame = session.sql(f"SELECT xxhash64({', '.join(names)}) AS hash FROM {table}")
        parts = [each.column(0).to_numpy() for each in frame.collect()]
    finally:
        session.deregister_table(table)
    return np.concatenate(parts).view(np.uint64)


def _bytes(field: Field, value: KeyValue) -> bytes:
    if isinstance(value, int):
        return struct.pack("<i" if field.type is PrimitiveType.INT else "<q", value)
    return value.encode() if isinstance(value, str) else value


# Magic, version, hash name, number of distinct keys, number of blocks. The checksum is the
# xxhash64 (seed 0) of the header and the blocks.
_HEADER = struct.Struct("<8sI16sQI")
_CHECKSUM = struct.Struct("<Q")
_MAGIC = b"SLPRFLTR"
_VERSION = 1
_HASH = HASH_NAME.encode().ljust(16, b"\0")
_BLOCKS_AT = _HEADER.size + _CHECKSUM.size

_BLOCK_BITS = 256
_BLOCK_BYTES = 32
_WORDS = 8
# https://github.com/apache/parquet-format/blob/master/BloomFilter.md
_SALTS = np.array(
    [
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    ],
    np.uint32,
)
_HALF = np.uint64(32)
_TO_BIT = np.uint32(27)
_ONE = np.uint32(1)
_LOW_HALF = np.uint64(2**32 - 1)
# The number of hashes set at a time, so that intermediate arrays fit the processor's cache.
_TURN = 16_384
# The salts of two words, repeated for the hashes of a turn.
_SALTS_OF_PAIRS = [np.tile(_SALTS[2 * pair : 2 * pair + 2], _TURN) for pair in range(_WORDS // 2)]
# The number of hashes kept until their total determines the filter's size: 32 MiB.
_WAITING_MAX = 4 * 1024**2
# A filter of fewer bits passes about every second absent key.
_USEFUL_BITS_PER_KEY = 3

Blocks = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class HashedKey:
    """The hash of one key, and the bits that it has in a block, as a little-endian integer."""

    hash: int
    bits: int


def hashed_key(schema: Schema, key: Key) -> HashedKey:
    """Returns a key for `KeyFilter.may_hold_key`. UnicodeEncodeError as of `hash_key`."""
    hashed = hash_key(schema, key)
    low, bits = hashed & 0xFFFF_FFFF, 0
    for shift, salt in _SHIFTED_SALTS:
        bits |= 1 << (shift + ((low * salt & 0xFFFF_FFFF) >> 27))
    return HashedKey(hashed, bits)


_SHIFTED_SALTS = tuple((32 * word, int(salt)) for word, salt in enumerate(_SALTS))


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Blocks as an array of shape (blocks, 8), and the number of distinct keys."""

    blocks: Blocks
    keys: int

    def may_hold_key(self, key: HashedKey) -> bool:
        """Returns False if the file does not hold the key.

        For one key this takes a tenth of the time of `may_hold`.
        """
        place = (key.hash >> 32) * len(self.blocks) >> 32
        block = int.from_bytes(self.blocks[place].tobytes(), "little")
        return block & key.bits == key.bits

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Returns False for each hash whose key the file does not hold."""
        masks = _ONE << ((hashes.astype(np.uint32)[:, None] * _SALTS) >> _TO_BIT)
        blocks = self.blocks[_places(hashes, len(self.blocks))]
        result: npt.NDArray[np.bool_] = ((blocks & masks) == masks).all(axis=1)
        return result

    def to_bytes(self) -> bytes:
        """Returns the sidecar's content."""
        return b"".join(self.parts())

    def parts(self) -> tuple[bytes, memoryview]:
        """Returns the sidecar's content in two parts, of which the second is not a copy."""
        header = _HEADER.pack(_MAGIC, _VERSION, _HASH, self.keys, len(self.blocks))
        body = np.ascontiguousarray(self.blocks).data.cast("B")
        return header + _CHECKSUM.pack(_checksum(header, body)), body


def key_filter_from_bytes(content: bytes, path: str) -> KeyFilter:
    """Parses a sidecar. DataError names the path if it is torn, damaged or of another version."""
    if len(content) < _BLOCKS_AT:
        raise DataError(
            f"sidecar {path} is damaged: {len(content)} bytes are too short for a key filter"
        )
    magic, version, hash_name, keys, blocks = _HEADER.unpack_from(content)
    if (magic, version, hash_name) != (_MAGIC, _VERSION, _HASH):
        raise DataError(
            f"sidecar {path} is not a key filter of version {_VERSION} by {HASH_NAME}: "
            f"{magic!r}, version {version}, {hash_name!r}"
        )
    body = memoryview(content)[_BLOCKS_AT:]
    if not blocks or len(body) != blocks * _BLOCK_BYTES:
        raise DataError(f"sidecar {path} is damaged: {len(body)} bytes for {blocks} blocks")
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    if checksum != _checksum(content[: _HEADER.size], body):
        raise DataError(f"sidecar {path} is damaged: its checksum does not fit")
    return KeyFilter(np.frombuffer(body, "<u4").reshape(blocks, _WORDS), keys)


class KeyFilterBuilder:
    """Builds a filter from the hashes of a file's keys in key order.

    Equal keys are adjacent, so each counts once, and their number determines the filter's size.
    Beyond a limit, hashes go into a filter of the maximum size, which is folded in halves at the
    end: a block's number is the upper part of a product, so half as many blocks halve it. With 0
    bits per key there is no filter.
    """

    def __init__(self, bits_per_key: int, bytes_max: int) -> None:
        self._bits_per_key = bits_per_key
        self._blocks_max = max(1, bytes_max // _BLOCK_BYTES)
        self._waiting: list[Hashes] = []
        self._waiting_count = 0
        self._last: np.uint64 | None = None
        self._keys = 0
        self._widest: Blocks | None = None

    @property
    def is_useless(self) -> bool:
        """Whether filters are off, or the largest filter would exclude hardly any key."""
        if not self._bits_per_key:
            return True
        return self._keys * _USEFUL_BITS_PER_KEY > self._blocks_max * _BLOCK_BITS

    def add(self, hashes: Hashes) -> None:
        """Adds the hashes of the next rows."""
        if not len(hashes) or self.is_useless:
            return
        is_new = np.empty(len(hashes), np.bool_)
        is_new[0] = self._last is None or hashes[0] != self._last
        np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
        self._last = hashes[-1]
        distinct = hashes if is_new.all() else hashes[is_new]
        self._waiting.append(distinct)
        self._waiting_count += len(distinct)
        self._keys += len(distinct)
        if self._waiting_count > _WAITING_MAX:
            if self._widest is None:
                self._widest = _no_blocks(1 << (self._blocks_max.bit_length() - 1))
            self._settle(self._widest)

    def finish(self) -> KeyFilter | None:
        """Returns the filter, None if it is useless."""
        if self.is_useless:
            return None
        blocks_needed = max(1, -(-self._keys * self._bits_per_key // _BLOCK_BITS))
        if self._widest is None:
            blocks = _no_blocks(min(blocks_needed, self._blocks_max))
            self._settle(blocks)
            return KeyFilter(blocks, self._keys)
        self._settle(self._widest)
        blocks = self._widest
        while len(blocks) // 2 >= blocks_needed:
            blocks = blocks[0::2] | blocks[1::2]
        return KeyFilter(blocks, self._keys)

    def _settle(self, blocks: Blocks) -> None:
        """Sets the bits of the waiting hashes."""
        if self._waiting:
            hashes = np.concatenate(self._waiting)
            self._waiting.clear()
            self._waiting_count = 0
            # Sorted by block, so that the bits of a block are set together.
            hashes.sort()
            for start in range(0, len(hashes), _TURN):
                _set(blocks, hashes[start : start + _TURN])


def _no_blocks(count: int) -> Blocks:
    return np.zeros((count, _WORDS), "<u4")


def _places(hashes: Hashes, blocks: int) -> Hashes:
    return ((hashes >> _HALF) * np.uint64(blocks)) >> _HALF


def _set(blocks: Blocks, ascending: Hashes) -> None:
    places = _places(ascending, len(blocks))
    is_first = np.empty(len(places), np.bool_)
    is_first[0] = True
    np.not_equal(places[1:], places[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    # Two words at once halve the number of reductions.
    low = ascending & _LOW_HALF
    low_twice = (low | (low << _HALF)).view("<u4")
    set_bits = np.empty(len(low_twice), "<u4")
    bits = np.empty((len(starts), _WORDS // 2), "<u8")
    for pair, salts in enumerate(_SALTS_OF_PAIRS):
        np.multiply(low_twice, salts[: len(low_twice)], out=set_bits)
        np.right_shift(set_bits, _TO_BIT, out=set_bits)
        np.left_shift(_ONE, set_bits, out=set_bits)
        bits[:, pair] = np.bitwise_or.reduceat(set_bits.view("<u8"), starts)
    changed = blocks.take(places[starts], axis=0)  # faster than an index
    blocks[places[starts]] = changed | bits.view("<u4")


def _checksum(header: bytes, body: bytes | memoryview) -> int:
    digest = xxhash.xxh64(header)
    digest.update(body)
    return digest.intdigest()
