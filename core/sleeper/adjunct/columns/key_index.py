"""A hash index of many keys, which finds whole columns of keys with NumPy.

A *slot* of the table has the index of a key, or -1. A key stands in the first free slot from that
of its hash on. The table has at least twice as many slots as keys.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]
AreEqual = Callable[[Rows, Slots], npt.NDArray[np.bool_]]

_EMPTY = -1
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_WORD_BYTES = 8
# The mask of the first n bytes of a word in little-endian order.
_MASKS = np.array([2 ** (8 * n) - 1 for n in range(9)], np.uint64)


def hash_numbers(numbers: npt.NDArray[np.int64]) -> Hashes:
    """Returns a hash of each number."""
    return _mix(numbers.view(np.uint64) ^ _SEED)


def hash_contents(contents: pa.Array) -> Hashes:
    """Returns a hash of each value of an array of bytes without nulls, a word at a time."""
    content, starts, lengths = _bytes(contents)
    hashes = _mix(lengths.astype(np.uint64) ^ _SEED)
    rows = np.arange(len(lengths))
    at_each_byte = np.ndarray((len(content) - _WORD_BYTES + 1,), "<u8", content, 0, (1,))
    offset = 0
    while len(rows := rows[lengths[rows] > offset]):
        words = at_each_byte[starts[rows] + offset]
        words &= _MASKS[np.minimum(lengths[rows] - offset, _WORD_BYTES)]
        hashes[rows] = _mix(hashes[rows] ^ words)
        offset += _WORD_BYTES
    return hashes


def build_slots(hashes: Hashes) -> Slots:
    """Returns the table of keys with the hashes."""
    mask = _size(len(hashes)) - 1
    slots = np.full(mask + 1, _EMPTY, np.int32)
    rows = np.arange(len(hashes), dtype=np.int32)
    indices = _first_slots(hashes, mask)
    while len(rows):
        free = slots[indices] == _EMPTY
        slots[indices[free]] = rows[free]
        is_left = slots[indices] != rows
        rows, indices = rows[is_left], (indices[is_left] + 1) & mask
    return slots


def find_rows(slots: Slots, hashes: Hashes, are_equal: AreEqual) -> Slots:
    """Returns the index of each key, -1 for one that is not in the table.

    `are_equal` compares the keys of some rows with those of the table at some indices.
    """
    mask = len(slots) - 1
    at = _first_slots(hashes, mask)
    matches = np.full(len(hashes), _EMPTY, np.int32)
    rows = np.arange(len(hashes))
    while len(rows):
        candidates = slots[at]
        is_candidate = candidates != _EMPTY
        if not is_candidate.all():
            rows, at, candidates = rows[is_candidate], at[is_candidate], candidates[is_candidate]
        is_equal = are_equal(rows, candidates)
        matches[rows[is_equal]] = candidates[is_equal]
        is_left = ~is_equal
        rows, at = rows[is_left], (at[is_left] + 1) & mask
    return matches


def _size(keys: int) -> int:
    return 1 << max(2 * keys - 1, 1).bit_length()


def _first_slots(hashes: Hashes, mask: int) -> Rows:
    return (hashes & np.uint64(mask)).view(np.int64)


def _mix(hashes: Hashes) -> Hashes:
    """Spreads each number over all bits: the finalizer of SplitMix64."""
    mixed = hashes ^ (hashes >> np.uint64(30))
    mixed *= _FACTORS[0]
    mixed ^= mixed >> np.uint64(27)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _bytes(contents: pa.Array) -> tuple[npt.NDArray[np.uint8], Rows, Rows]:
    """Returns the bytes with a word more, and the start and length of each value."""
    _, offsets, content = contents.buffers()
    kind = np.int64 if pa.types.is_large_binary(contents.type) else np.int32
    all_offsets = np.frombuffer(offsets, kind)[contents.offset :][: len(contents) + 1]
    indices = all_offsets.astype(np.int64)
    first, end = (int(indices[0]), int(indices[-1])) if len(contents) else (0, 0)
    raw = b"" if content is None else memoryview(content)[first:end]
    padded = np.frombuffer(b"".join((raw, bytes(_WORD_BYTES))), np.uint8)
    return padded, indices[:-1] - first, np.diff(indices)
