"""Builds the key filter of a file while the file is written, in bounded memory."""

from collections.abc import Callable

import numpy as np

from sleeper.datafiles.sidecars.key_filter import (
    BLOCK_BITS,
    BLOCK_BYTES,
    SALTS,
    WORDS,
    Blocks,
    Hashes,
    KeyFilter,
    block_indexes,
)
from sleeper.datafiles.sidecars.key_order import shortest_start

_HALF = np.uint64(32)
_TO_BIT = np.uint32(27)
_ONE = np.uint32(1)
_LOW_HALF = np.uint64(2**32 - 1)
# The number of hashes set at a time, so that intermediate arrays fit the processor's cache.
_TURN = 16_384
# The salts of two words, repeated for the hashes of a turn.
_SALTS_OF_PAIRS = [np.tile(SALTS[2 * pair : 2 * pair + 2], _TURN) for pair in range(WORDS // 2)]
# The number of keys after which a range ends: 8 MiB of hashes that wait, 1.75 MiB of filter.
_RANGE_KEYS = 1024**2
# The number of blocks of a range is a multiple, so that it can be halved six times.
_BLOCKS_MULTIPLE = 64
# A filter of fewer bits passes about every second absent key.
_USEFUL_BITS_PER_KEY = 3

OrderAt = Callable[[int], bytes]
"""Returns the `encode_key` of the key at a place."""


class KeyFilterBuilder:
    """Builds a filter from the hashes of a file's keys in key order.

    Equal keys are adjacent, so each counts once, and the number of keys of a range determines its
    size. If the ranges together exceed the maximum size, those with the most bits per key are
    folded in halves: a block's number is the upper part of a product, so half as many blocks
    halve it. With 0 bits per key there is no filter.
    """

    def __init__(self, bits_per_key: int, bytes_max: int) -> None:
        self._bits_per_key = bits_per_key
        self._blocks_max = max(1, bytes_max // BLOCK_BYTES)
        self._waiting: list[Hashes] = []
        self._waiting_count = 0
        self._last: np.uint64 | None = None
        self._last_order = b""
        self._keys = 0
        self._ranges: list[Blocks] = []
        self._range_keys: list[int] = []
        self._starts: list[bytes] = []
        self._is_too_large = False

    @property
    def is_useless(self) -> bool:
        """Whether filters are off, or the largest filter would exclude hardly any key."""
        if not self._bits_per_key or self._is_too_large:
            return True
        return self._keys * _USEFUL_BITS_PER_KEY > self._blocks_max * BLOCK_BITS

    def add(self, hashes: Hashes, order_at: OrderAt) -> None:
        """Adds the hashes of the next rows. `order_at` is called for few of these rows."""
        if not len(hashes) or self.is_useless:
            return
        is_new = np.empty(len(hashes), np.bool_)
        is_new[0] = self._last is None or hashes[0] != self._last
        np.not_equal(hashes[1:], hashes[:-1], out=is_new[1:])
        distinct = hashes if is_new.all() else hashes[is_new]
        if self._waiting_count >= _RANGE_KEYS and len(distinct):
            self._start_range(int(is_new.argmax()), order_at)
        self._last = hashes[-1]
        self._waiting.append(distinct)
        self._waiting_count += len(distinct)
        self._keys += len(distinct)
        if self._waiting_count >= _RANGE_KEYS:
            self._last_order = order_at(len(hashes) - 1)

    def finish(self) -> KeyFilter | None:
        """Returns the filter, None if it is useless."""
        if self.is_useless:
            return None
        if not self._ranges:
            blocks = _no_blocks(min(self._blocks_needed(), self._blocks_max))
            self._set_waiting(blocks)
            return KeyFilter((blocks,), self._keys)
        self._end_range()
        if self.is_useless:
            return None
        return KeyFilter(tuple(self._ranges), self._keys, tuple(self._starts))

    def _start_range(self, row: int, order_at: OrderAt) -> None:
        """Ends the current range before this row, whose key differs from the one before."""
        previous = order_at(row - 1) if row else self._last_order
        self._starts.append(shortest_start(previous, order_at(row)))
        self._end_range()

    def _end_range(self) -> None:
        blocks = _no_blocks(-(-self._blocks_needed() // _BLOCKS_MULTIPLE) * _BLOCKS_MULTIPLE)
        self._range_keys.append(self._waiting_count)
        self._set_waiting(blocks)
        self._ranges.append(blocks)
        self._fold()

    def _blocks_needed(self) -> int:
        return max(1, -(-self._waiting_count * self._bits_per_key // BLOCK_BITS))

    def _fold(self) -> None:
        """Halves ranges until all fit."""
        excess = sum(map(len, self._ranges)) - self._blocks_max
        while excess > 0:
            bits = [
                len(blocks) / keys if len(blocks) % 2 == 0 else 0
                for blocks, keys in zip(self._ranges, self._range_keys, strict=True)
            ]
            position = int(np.argmax(bits))
            if not bits[position]:
                self._is_too_large = True
                self._ranges.clear()
                return
            blocks = self._ranges[position]
            self._ranges[position] = blocks[0::2] | blocks[1::2]
            excess -= len(blocks) // 2

    def _set_waiting(self, blocks: Blocks) -> None:
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
    return np.zeros((count, WORDS), "<u4")


def _set(blocks: Blocks, ascending: Hashes) -> None:
    positions = block_indexes(ascending, len(blocks))
    is_first = np.empty(len(positions), np.bool_)
    is_first[0] = True
    np.not_equal(positions[1:], positions[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    # Two words at once halve the number of reductions.
    low = ascending & _LOW_HALF
    low_twice = (low | (low << _HALF)).view("<u4")
    set_bits = np.empty(len(low_twice), "<u4")
    bits = np.empty((len(starts), WORDS // 2), "<u8")
    for pair, salts in enumerate(_SALTS_OF_PAIRS):
        np.multiply(low_twice, salts[: len(low_twice)], out=set_bits)
        np.right_shift(set_bits, _TO_BIT, out=set_bits)
        np.left_shift(_ONE, set_bits, out=set_bits)
        bits[:, pair] = np.bitwise_or.reduceat(set_bits.view("<u8"), starts)
    changed = blocks.take(positions[starts], axis=0)  # faster than an index
    blocks[positions[starts]] = changed | bits.view("<u4")
