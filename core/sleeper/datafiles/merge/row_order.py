"""The order of rows in memory by columns.

A key is a sequence of *words*, numbers of up to 64 bits in the order of the key. Rows are sorted
by the first bits of their words, as many as fit a number of 64 bits beside the row's place. Rows
that are equal so far are sorted by the next bits, until none are equal or no word is left. The
first bits of most keys differ, and NumPy sorts numbers faster than anything compares keys.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain, has_short_views, is_view
from sleeper.datafiles.key_values import as_key_column

Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Word = Callable[[Places | None], Words]
"""Returns a new array of one word of each of the given rows, or of all."""

_BITS = 64
# More words are added while at least so many bits are free.
_FREE_BITS_MIN = 16
_SORTED_MIN = 2
_WORD_BYTES = 8
_SIGN = np.uint64(2**63)
_VIEW_BYTES = 16
# Further bytes of text are compared, because each word of a long text is sought in all equal rows.
_WORDS_BYTES_MAX = 128
# Masks that keep the first 0 to 8 bytes of a word.
_FIRST_BYTES = np.array([(2**64 - 1) ^ (2 ** (64 - 8 * n) - 1) for n in range(9)], np.uint64)


def sort_positions(columns: Sequence[pa.Array], are_descending: Sequence[bool]) -> Places:
    """Returns the places of the rows in the order of the columns. Nulls are last.

    Columns are of key types, and of one length. Equal rows keep their order.
    """
    order: Places = np.arange(len(columns[0]))
    if len(order) < _SORTED_MIN:
        return order
    words = deque(
        word
        for column, is_descending in zip(columns, are_descending, strict=True)
        for word in _words(column, is_descending)
    )
    rows: Places | None = None
    positions, groups = order, None
    while (packed := _pack(words, rows, groups, len(positions))) is not None:
        packed.sort()
        index_bits = _index_bits(len(packed))
        by = (packed & np.uint64(2**index_bits - 1)).view(np.int64)
        if rows is None:
            order = by
        else:
            order[positions] = rows[by]
        packed >>= index_bits
        is_equal = packed[1:] == packed[:-1]
        if not is_equal.any():
            break
        is_start = np.concatenate([[True], ~is_equal])
        is_tied = ~is_start
        is_tied[:-1] |= is_equal
        tied = np.flatnonzero(is_tied)
        positions = tied if rows is None else positions[tied]
        rows = order[positions]
        groups = np.cumsum(is_start[tied]) - 1
    return order


def _index_bits(rows: int) -> int:
    return (rows - 1).bit_length()


def _pack(
    words: deque[Word], rows: Places | None, groups: Places | None, count: int
) -> Words | None:
    """Returns a number for each row: its group, bits of the next words, its index.

    What is left of a word that does not fit becomes the next word. None if no word differs.
    """
    free = _BITS - _index_bits(count)
    packed: Words | None = None
    if groups is not None:
        packed = groups.view(np.uint64)
        free -= int(groups[-1]).bit_length()
    has_more = False
    while words and (not has_more or free >= _FREE_BITS_MIN):
        word = words.popleft()
        values = word(rows)
        least = values.min()
        values -= least
        union = int(np.bitwise_or.reduce(values))
        if not union:
            continue
        low_bits = (union & -union).bit_length() - 1
        size = union.bit_length() - low_bits
        left = max(0, size - free)
        if left:
            words.appendleft(_last_bits(word, least, low_bits, left))
        values >>= low_bits + left
        size -= left
        if packed is not None:
            values |= packed << size
        packed = values
        free -= size
        has_more = True
    if not has_more or packed is None:
        return None
    packed <<= _index_bits(count)
    packed |= np.arange(count, dtype=np.uint64)
    return packed


def _last_bits(word: Word, least: np.uint64, low_bits: int, count: int) -> Word:
    mask = np.uint64(2**count - 1)

    def rest(rows: Places | None) -> Words:
        values = word(rows)
        values -= least
        values >>= low_bits
        values &= mask
        return values

    return rest


def _words(column: pa.Array, is_descending: bool) -> Iterator[Word]:
    """Yields the words of a column, the first one first."""
    if column.null_count:
        is_null = pc.is_null(column).to_numpy(zero_copy_only=False).astype(np.uint64)
        yield lambda rows: _chosen(is_null, rows)
        column = as_plain(column)
    if is_view(column.type) and has_short_views(column):
        words = _view_words(column)
    elif _is_text(column.type):
        words = _text_words(column)
    else:
        words = iter([_number_word(column)])
    for word in words:
        yield _inverted(word) if is_descending else word


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _inverted(word: Word) -> Word:
    def inverted(rows: Places | None) -> Words:
        values = word(rows)
        return np.invert(values, out=values)

    return inverted


def _chosen(values: npt.NDArray[np.uint64], rows: Places | None) -> Words:
    return values.copy() if rows is None else values[rows]


def _number_word(column: pa.Array) -> Word:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        # Keys have at most 18 digits, so the lower half is the number.
        column = as_key_column(column)
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    return lambda rows: _signed(numbers, rows)


def _signed(numbers: npt.NDArray[np.integer], rows: Places | None) -> Words:
    chosen = numbers if rows is None else numbers[rows]
    words = chosen.astype(np.int64).view(np.uint64)
    words ^= _SIGN
    return words


def _view_words(column: pa.Array) -> Iterator[Word]:
    """A view has the length in 4 bytes, and then up to 12 bytes padded with zeros."""

    def part(position: int, kind: str) -> npt.NDArray[np.integer]:
        start = column.offset * _VIEW_BYTES + position
        return np.ndarray((len(column),), kind, column.buffers()[1], start, (_VIEW_BYTES,))

    def word(values: npt.NDArray[np.integer]) -> Word:
        return lambda rows: (values if rows is None else values[rows]).astype(np.uint64)

    yield word(part(4, ">u8"))
    yield word(part(12, ">u4"))
    yield word(part(0, "<u4"))


def _text_words(column: pa.Array) -> Iterator[Word]:
    """The words of text padded with zeros, and then its length, or its rank if it is long."""
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    values = np.frombuffer(data or b"", np.uint8)
    if len(values) < _WORD_BYTES:
        values = np.concatenate([values, np.zeros(_WORD_BYTES, np.uint8)])
    last = len(values) - _WORD_BYTES
    anywhere = np.ndarray((last + 1,), ">u8", values, 0, (1,))

    def word(skipped: int) -> Word:
        def words_at(rows: Places | None) -> Words:
            start = offsets[:-1] if rows is None else offsets[rows]
            length = lengths if rows is None else lengths[rows]
            at = start.astype(np.int64) + skipped
            inside = np.minimum(at, last)
            words = anywhere[inside].astype(np.uint64)
            words <<= np.minimum(8 * (at - inside), _BITS).astype(np.uint64)
            words &= _FIRST_BYTES[np.clip(length - skipped, 0, _WORD_BYTES)]
            return words

        return words_at

    for skipped in range(0, min(longest, _WORDS_BYTES_MAX), _WORD_BYTES):
        yield word(skipped)
    if longest > _WORDS_BYTES_MAX:
        yield _rank_word(column)
    else:
        yield lambda rows: _chosen(lengths.astype(np.uint64), rows)


def _rank_word(column: pa.Array) -> Word:
    """The ranks among the rows of the first call. Later rows are some of those."""
    ranks: Words | None = None

    def ranks_at(rows: Places | None) -> Words:
        nonlocal ranks
        if ranks is None:
            ranks = np.zeros(len(column), np.uint64)
            chosen = column if rows is None else column.take(pa.array(rows))
            ranks[slice(None) if rows is None else rows] = pc.rank(chosen, tiebreaker="dense")
        return _chosen(ranks, rows)

    return ranks_at


def take_rows(columns: Sequence[pa.Array], places: Places) -> list[pa.Array]:
    """Returns the rows at the places. Columns may be short views."""
    index: pa.Array | None = None
    taken = []
    for column in columns:
        if has_short_views(column):
            taken.append(_take_views(column, places))
            continue
        if index is None:
            index = pa.array(places)
        taken.append(pc.take(column, index, boundscheck=False))
    return taken


def _take_views(column: pa.Array, positions: Places) -> pa.Array:
    views = np.frombuffer(column.buffers()[1], np.complex128)[column.offset :]
    taken = views[positions]
    valid = None
    if column.null_count:
        is_valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        valid = pa.array(is_valid[positions]).buffers()[1]
        taken[~is_valid[positions]] = 0
    return pa.Array.from_buffers(column.type, len(positions), [valid, pa.py_buffer(taken)])
