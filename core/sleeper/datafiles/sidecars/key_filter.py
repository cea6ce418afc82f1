"""The `.filter` sidecar: which keys a file surely does not hold.

A split-block Bloom filter, as Parquet's specification has it, over the hashes of whole row
keys (`key_hash`). A *block* is eight words of 32 bits; a hash chooses a block by its upper
half and one bit in each of the block's words by its lower half. The bytes are in
docs/formats.md, "Filter sidecar". A filter never denies a key that the file holds.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from sleeper.datafiles.sidecars.key_hash import HASH_NAME, Hashes
from sleeper.errors import DataError

# Magic, version, name of the hash, number of distinct keys, number of blocks, and the
# xxhash64 (seed 0) of all that and the blocks.
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
_LONG_ONE = np.uint64(1)
_WORD_BITS = np.uint32(32)
# Set at a time, so that what is computed on the way stays in the processor's cache.
_TURN = 16_384
# Hashes that wait until their number says how large the filter is: 32 MiB of them.
_WAITING_MAX = 4 * 1024**2
# Below this a filter says yes to about every second key.
_USEFUL_BITS_PER_KEY = 3

Blocks = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Blocks as an array of (blocks, 8), for so many distinct keys."""

    blocks: Blocks
    keys: int

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """For each key's hash, False if the file surely does not hold the key."""
        masks = _ONE << ((hashes.astype(np.uint32)[:, None] * _SALTS) >> _TO_BIT)
        blocks = self.blocks[_places(hashes, len(self.blocks))]
        found: npt.NDArray[np.bool_] = ((blocks & masks) == masks).all(axis=1)
        return found

    def to_bytes(self) -> bytes:
        """The sidecar's content."""
        header = _HEADER.pack(_MAGIC, _VERSION, _HASH, self.keys, len(self.blocks))
        body = self.blocks.tobytes()
        return header + _CHECKSUM.pack(_checksum(header, body)) + body


def key_filter_from_bytes(content: bytes, path: str) -> KeyFilter:
    """The filter of a sidecar; DataError names the path if it is torn or of another kind."""
    if len(content) < _BLOCKS_AT:
        raise DataError(f"sidecar {path} is torn: {len(content)} bytes are no key filter")
    magic, version, hash_name, keys, blocks = _HEADER.unpack_from(content)
    if (magic, version, hash_name) != (_MAGIC, _VERSION, _HASH):
        raise DataError(
            f"sidecar {path} is not a key filter of version {_VERSION} by {HASH_NAME}: "
            f"{magic!r}, version {version}, {hash_name!r}"
        )
    body = memoryview(content)[_BLOCKS_AT:]
    if not blocks or len(body) != blocks * _BLOCK_BYTES:
        raise DataError(f"sidecar {path} is torn: {len(body)} bytes for {blocks} blocks")
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    if checksum != _checksum(content[: _HEADER.size], body):
        raise DataError(f"sidecar {path} is damaged: its checksum does not fit")
    return KeyFilter(np.frombuffer(body, "<u4").reshape(blocks, _WORDS), keys)


class KeyFilterBuilder:
    """Gathers the hashes of a file's keys, which come in key order, and makes its filter.

    Equal keys follow each other, so each counts once, and their number sizes the filter. If
    more come than may wait, they go into a filter of the largest size, which is folded in
    halves at the end: a block's number is the upper part of a product, so that of half as
    many blocks is half of it. With 0 bits a key there is no filter.
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
        """Whether none is wanted, or the largest would tell next to nothing of so many keys."""
        if not self._bits_per_key:
            return True
        return self._keys * _USEFUL_BITS_PER_KEY > self._blocks_max * _BLOCK_BITS

    def add(self, hashes: Hashes) -> None:
        """Takes the hashes of the next rows."""
        if not len(hashes) or self.is_useless:
            return
        is_new = np.empty(len(hashes), np.bool_)
        is_new[0] = self._last is None or hashes[0] != self._last
        np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
        self._last = hashes[-1]
        distinct = hashes[is_new]
        self._waiting.append(distinct)
        self._waiting_count += len(distinct)
        self._keys += len(distinct)
        if self._waiting_count > _WAITING_MAX:
            if self._widest is None:
                self._widest = _no_blocks(1 << (self._blocks_max.bit_length() - 1))
            self._settle(self._widest)

    def finish(self) -> KeyFilter | None:
        """The filter; None if it is useless."""
        if self.is_useless:
            return None
        wanted = max(1, -(-self._keys * self._bits_per_key // _BLOCK_BITS))
        if self._widest is None:
            blocks = _no_blocks(min(wanted, self._blocks_max))
            self._settle(blocks)
            return KeyFilter(blocks, self._keys)
        self._settle(self._widest)
        blocks = self._widest
        while len(blocks) // 2 >= wanted:
            blocks = blocks[0::2] | blocks[1::2]
        return KeyFilter(blocks, self._keys)

    def _settle(self, blocks: Blocks) -> None:
        """Sets the bits of the hashes that wait."""
        if self._waiting:
            hashes = np.concatenate(self._waiting)
            self._waiting, self._waiting_count = [], 0
            # In the order of their blocks: those of one block are set together.
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
    low = ascending.astype(np.uint32)
    bits = np.empty((len(starts), _WORDS // 2), "<u8")
    for pair in range(_WORDS // 2):
        # Two words at once: what is set together is looked for half as often.
        first = (low * _SALTS[2 * pair]) >> _TO_BIT
        second = ((low * _SALTS[2 * pair + 1]) >> _TO_BIT) + _WORD_BITS
        both = (_LONG_ONE << first.astype(np.uint64)) | (_LONG_ONE << second.astype(np.uint64))
        bits[:, pair] = np.bitwise_or.reduceat(both, starts)
    blocks[places[starts]] |= bits.view("<u4")


def _checksum(header: bytes, body: bytes | memoryview) -> int:
    digest = xxhash.xxh64(header)
    digest.update(body)
    return digest.intdigest()
