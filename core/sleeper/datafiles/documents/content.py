"""The structure of a column of JSON documents, as bitmaps of their bytes.

A *span* of a document is the part of its bytes that is one value, such as that of a member. The
*depth* of a position is the number of objects and arrays that are open before it. Both follow from
a few comparisons of whole blocks of bytes, so that no byte is looked at by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import as_numbers
from sleeper.datafiles.documents.bits import (
    WORD_BITS,
    Bitmap,
    Flags,
    Positions,
    Words,
    counts_before,
    fill_between,
    pack_flags,
    split_positions,
)
from sleeper.datafiles.json_syntax import NotJsonError

Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH, _COMMA, _COLON = (ord(each) for each in '"\\,:')
_OPENING, _CLOSING, _LOWER = 0x7B, 0x7D, 0x20
SPACE = 0x20
"""Bytes up to this one are blanks."""
# The last byte of a content, at which skipping blanks ends.
_STOP = ord("!")
_ONE = np.uint64(1)
# The bytes of a part fit a processor's cache.
_PART_BYTES = 256 * 1024
# Blanks are skipped byte by byte until they are many.
_STEPS_MAX = 4


@dataclass(frozen=True)
class Documents:
    """The documents of a column one after another, with blanks after the last one.

    `starts` and `ends` have the positions of each; `words` are the eight bytes from any position.
    """

    content: Bytes
    starts: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def words(self) -> Words:
        """The eight bytes from each position, as a number."""
        return np.ndarray(len(self.content) - 7, "<u8", self.content.data, strides=(1,))

    @cached_property
    def has_escapes(self) -> bool:
        """Whether there is a backslash."""
        return bool((self.content == _BACKSLASH).any())

    @cached_property
    def quotes(self) -> Bitmap:
        """The first and the last quotes of texts."""
        flags = self.content == _QUOTE
        if self.has_escapes:
            flags[self._escaped()] = False
        return pack_flags(flags)

    @cached_property
    def inside(self) -> Bitmap:
        """The bytes of texts, with their first quotes."""
        return fill_between(self.quotes)

    @cached_property
    def first_quotes(self) -> Bitmap:
        """The first quotes of texts."""
        return self.quotes & self.inside

    @cached_property
    def last_quotes(self) -> Bitmap:
        """The last quotes of texts."""
        return self.quotes & ~self.inside

    @cached_property
    def _lower(self) -> Bytes:
        # Brackets differ from braces by one bit.
        return self.content | np.uint8(_LOWER)

    @cached_property
    def openings(self) -> Bitmap:
        """The first bytes of objects and arrays."""
        return pack_flags(self._lower == _OPENING) & ~self.inside

    @cached_property
    def closings(self) -> Bitmap:
        """The last bytes of objects and arrays."""
        return pack_flags(self._lower == _CLOSING) & ~self.inside

    @cached_property
    def commas(self) -> Bitmap:
        """The commas between members or elements."""
        return pack_flags(self.content == _COMMA) & ~self.inside

    @cached_property
    def marks(self) -> Bitmap:
        """All bytes that are no blanks."""
        return pack_flags(self.content > SPACE)

    @cached_property
    def rows(self) -> Bitmap:
        """The first bytes of documents."""
        flags = np.zeros(len(self.content), np.bool_)
        flags[self.starts] = True
        return pack_flags(flags)

    @cached_property
    def _depths(self) -> Positions:
        opened = counts_before(np.bitwise_count(self.openings.words))
        return opened - counts_before(np.bitwise_count(self.closings.words))

    def depths(self, positions: Positions) -> Positions:
        """Returns the depth of each position."""
        words, bits = split_positions(positions)
        below = (_ONE << bits) - _ONE
        opened = np.bitwise_count(self.openings.words[words] & below)
        closed = np.bitwise_count(self.closings.words[words] & below)
        return self._depths[words] + opened - closed

    def closings_at(self, depth: int) -> Bitmap:
        """Returns the last bytes of objects and arrays whose members have the depth."""
        return self._at_depth(self.closings, depth)

    def commas_at(self, depth: int) -> Bitmap:
        """Returns the commas between members or elements of the depth."""
        return self._at_depth(self.commas, depth)

    def _at_depth(self, bitmap: Bitmap, depth: int) -> Bitmap:
        positions = bitmap.positions()
        flags = np.zeros(len(self.content), np.bool_)
        flags[positions[self.depths(positions) == depth]] = True
        return pack_flags(flags)

    def skip_blanks(self, positions: Positions) -> Positions:
        """Returns the first byte that is no blank at or after each position."""
        for _ in range(_STEPS_MAX):
            is_blank = self.content[positions] <= SPACE
            if not is_blank.any():
                return positions
            positions = positions + is_blank
        return self.marks.next_positions(positions)

    def value_ends(self, starts: Positions, depth: int) -> Positions:
        """Returns the position after each value that begins at one of these, of one depth."""
        first = self.content[starts]
        is_text = first == _QUOTE
        is_nested = (first | _LOWER) == _OPENING
        ends = np.empty(len(starts), np.int64)
        if is_text.any():
            ends[is_text] = self.last_quotes.next_positions(starts[is_text]) + 1
        if is_nested.any():
            closings = self.closings_at(depth + 1)
            ends[is_nested] = closings.next_positions(starts[is_nested]) + 1
        is_other = ~(is_text | is_nested)
        if is_other.any():
            ends[is_other] = self._ends_of_words.next_positions(starts[is_other])
        return ends

    @cached_property
    def _ends_of_words(self) -> Bitmap:
        return pack_flags((self.content <= SPACE) | (self.content == _COMMA)) | self.closings

    def check_balance(self) -> None:
        """Raises NotJsonError if a document has quotes or brackets without the other one."""
        bounds = np.append(self.starts, self.ends[-1:])
        if self.depths(bounds).any() or (self.quotes.ranks(bounds) & 1).any():
            raise NotJsonError("not JSON: a quote or a bracket without the other one")

    @cached_property
    def _slashes(self) -> Positions:
        return np.flatnonzero(self.content == _BACKSLASH)

    @cached_property
    def escaped_names(self) -> tuple[Positions, Positions]:
        """The bounds of the names that have a backslash."""
        if not len(self.starts):
            return self.starts, self.ends
        texts = np.unique(self.first_quotes.ranks(self._slashes))
        starts = self.first_quotes.positions()[texts[texts > 0] - 1]
        ends = self.last_quotes.next_positions(starts) + 1
        is_name = self.content[self.skip_blanks(ends)] == _COLON
        return starts[is_name], ends[is_name]

    def have_escapes(self, starts: Positions, ends: Positions) -> Flags:
        """Returns whether there is a backslash between each start and end."""
        if not self.has_escapes:
            return np.zeros(len(starts), np.bool_)
        result: Flags = np.searchsorted(self._slashes, starts) < np.searchsorted(
            self._slashes, ends
        )
        return result

    def _escaped(self) -> Positions:
        """Returns the positions after an odd number of backslashes."""
        slashes = self._slashes
        firsts = np.flatnonzero(np.append(True, np.diff(slashes) != 1))
        lengths = np.diff(np.append(firsts, len(slashes)))
        ends: Positions = (slashes[firsts] + lengths)[lengths % 2 == 1]
        return ends


def read_documents(values: pa.Array) -> Documents:
    """Returns the documents of a column of text. Nulls are documents of a blank.

    Raises NotJsonError if a document has quotes or brackets without the other one. The grammar is
    not checked: parts of text that is not JSON are any part of it.
    """
    joined = values.cast(pa.large_string())
    if joined.null_count:
        joined = pc.fill_null(joined, pa.scalar(" ", pa.large_string()))
    _, offsets_buffer, data = joined.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, len(joined) + 1, joined.offset * 8)
    start, stop = int(offsets[0]), int(offsets[-1])
    # Positions at the end, and eight bytes after them, are part of the content.
    size = (stop - start) // WORD_BITS * WORD_BITS + 2 * WORD_BITS
    content = np.full(size, SPACE, np.uint8)
    content[-1] = _STOP
    if stop > start:
        content[: stop - start] = np.frombuffer(data, np.uint8, stop - start, start)
    bounds = offsets - start
    documents = Documents(content, bounds[:-1], bounds[1:])
    if not (documents.starts < documents.ends).all():
        raise NotJsonError("not JSON: empty text")
    if len(joined):
        documents.check_balance()
    return documents


def read_parts(values: pa.Array) -> Iterator[Documents]:
    """Yields the documents of a column of text in parts, at least one.

    Raises NotJsonError as `read_documents`.
    """
    sizes = as_numbers(pc.fill_null(pc.binary_length(values), 0))
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(values) or not start:
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        part = values[start:stop] if stop > start else values[start : start + 1]
        yield read_documents(part)
        start = max(stop, start + 1)
