"""Sets of byte positions as bits.

A *bitmap* has a bit for each byte of a content, 64 to a word, the first byte in the lowest bit. Its
*rank* at a position is the number of bits before the position.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WORD_BITS = 64
_ONE, _ALL, _TOP = np.uint64(1), np.uint64(2**64 - 1), np.uint64(63)
_DOUBLINGS = tuple(np.uint64(2**each) for each in range(6))


@dataclass(frozen=True)
class Bitmap:
    """A set of positions."""

    words: Words

    @cached_property
    def _next_words(self) -> Positions:
        """By word, the first word with a bit at or after it, or the number of words."""
        count = len(self.words)
        numbers = np.where(self.words != 0, np.arange(count), count)
        result = np.append(np.minimum.accumulate(numbers[::-1])[::-1], count)
        return result.astype(np.int64, copy=False)

    @cached_property
    def _ranks(self) -> Positions:
        return counts_before(np.bitwise_count(self.words))

    @property
    def end(self) -> int:
        """The position after the last one that the bitmap could have."""
        return len(self.words) * WORD_BITS

    def __invert__(self) -> "Bitmap":
        return Bitmap(~self.words)

    def __and__(self, other: "Bitmap") -> "Bitmap":
        return Bitmap(self.words & other.words)

    def __or__(self, other: "Bitmap") -> "Bitmap":
        return Bitmap(self.words | other.words)

    def has(self, positions: Positions) -> Flags:
        """Returns whether each position is in the set."""
        words, bits = split_positions(positions)
        result: Flags = (self.words[words] >> bits & _ONE).astype(np.bool_)
        return result

    def next_positions(self, positions: Positions) -> Positions:
        """Returns the first position of the set at or after each, `end` if there is none."""
        words, bits = split_positions(positions)
        rest = self.words[words] & (_ALL << bits)
        is_later = rest == 0
        if is_later.any():
            later = self._next_words[words[is_later] + 1]
            words[is_later] = later
            rest[is_later] = np.append(self.words, _ONE)[later]
        return words * WORD_BITS + _lowest_bits(rest)

    def ranks(self, positions: Positions) -> Positions:
        """Returns the number of positions of the set before each."""
        words, bits = split_positions(positions)
        below = self.words[words] & ((_ONE << bits) - _ONE)
        return self._ranks[words] + np.bitwise_count(below)

    def shifted(self, distance: int) -> "Bitmap":
        """Returns the set of the positions `distance` bytes before those of the set."""
        whole, part = divmod(distance, WORD_BITS)
        words = np.zeros(len(self.words) + 1, np.uint64)
        if whole < len(self.words):
            words[: len(self.words) - whole] = self.words[whole:]
        if part:
            high = words[1:] << np.uint64(WORD_BITS - part)
            return Bitmap((words[:-1] >> np.uint64(part)) | high)
        return Bitmap(words[:-1])

    def positions(self) -> Positions:
        """Returns the positions of the set in order."""
        counts = np.bitwise_count(self.words)
        places = np.flatnonzero(counts)
        rest, ranks = self.words[places], counts_before(counts[places])
        result = np.empty(int(counts.sum()), np.int64)
        while len(places):
            result[ranks] = places * WORD_BITS + _lowest_bits(rest)
            rest = rest & (rest - _ONE)
            is_left = rest != 0
            places, rest, ranks = places[is_left], rest[is_left], ranks[is_left] + 1
        return result


def split_positions(positions: Positions) -> tuple[Positions, Words]:
    """Returns the word of each position, and the bit in the word."""
    return positions >> 6, (positions & 63).view(np.uint64)


def pack_flags(flags: Flags) -> Bitmap:
    """Returns the positions of the flags, of which there is a multiple of 64."""
    return Bitmap(np.packbits(flags, bitorder="little").view(np.uint64))


def fill_between(bitmap: Bitmap) -> Bitmap:
    """Returns the positions from each odd one of the set to the one before the next one."""
    words = bitmap.words.copy()
    for distance in _DOUBLINGS:
        words ^= words << distance
    is_odd = words >> _TOP
    before = np.bitwise_xor.accumulate(is_odd) ^ is_odd
    return Bitmap(words ^ (np.uint64(0) - before))


def counts_before(counts: npt.NDArray[np.uint8]) -> Positions:
    """Returns the sum of the counts before each."""
    sums = np.cumsum(counts, dtype=np.int64)
    return sums - counts


def _lowest_bits(words: Words) -> Positions:
    lowest = (words & (np.uint64(0) - words)) - _ONE
    return np.bitwise_count(lowest).astype(np.int64)
