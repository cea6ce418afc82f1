"""The parts of documents to which a path leads."""

import re
from dataclasses import dataclass, replace

import numpy as np

from sleeper.datafiles.documents.bits import Flags, Positions
from sleeper.datafiles.documents.content import SPACE, Bytes, Documents
from sleeper.datafiles.documents.path import Step
from sleeper.datafiles.documents.texts import unescape_texts

_COLON, _BRACE, _BRACKET, _BRACKET_END = (ord(each) for each in ":{[]")
_NOT_PLAIN = re.compile(rb'["\\]')
_WORD_BYTES = 8
# Blanks after a document are dropped one by one until they are many.
_STEPS_MAX = 4


@dataclass(frozen=True, slots=True)
class Spans:
    """One value of some documents, all at one depth: the rows, in order, and the values' bounds."""

    documents: Documents
    rows: Positions
    starts: Positions
    ends: Positions
    depth: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def first_bytes(self) -> Bytes:
        """The first byte of each value, which tells its type."""
        first: Bytes = self.documents.content[self.starts]
        return first

    def where(self, flags: Flags) -> "Spans":
        """Returns the values that have the flag."""
        if flags.all():
            return self
        return Spans(
            self.documents, self.rows[flags], self.starts[flags], self.ends[flags], self.depth
        )

    def follow(self, path: tuple[Step, ...]) -> "Spans":
        """Returns the values to which the path leads, without absent ones."""
        spans = self if path else self._trimmed()
        for step in path:
            spans = _member(spans, step) if isinstance(step, str) else _element(spans, step)
        return spans

    def _trimmed(self) -> "Spans":
        """Returns the values without blanks after them."""
        documents, ends = self.documents, self.ends
        is_blank = documents.content[ends - 1] <= SPACE
        for _ in range(_STEPS_MAX):
            if not is_blank.any():
                break
            ends = ends - is_blank
            is_blank = documents.content[ends - 1] <= SPACE
        else:
            ends = documents.value_ends(self.starts, self.depth)
        return replace(self, ends=np.minimum(ends, self.ends))


def whole(documents: Documents) -> Spans:
    """Returns the documents themselves."""
    starts = documents.skip_blanks(documents.starts)
    spans = Spans(documents, np.arange(len(documents)), starts, documents.ends)
    return spans.where(starts < documents.ends)


def _member(spans: Spans, name: str) -> Spans:
    documents, depth = spans.documents, spans.depth + 1
    starts, ends = _texts_equal(documents, name.encode(errors="surrogatepass"))
    is_here = documents.depths(starts) == depth
    starts, after = starts[is_here], documents.skip_blanks(ends[is_here])
    places = _places(spans, starts)
    is_member = (places >= 0) & (documents.content[after] == _COLON)
    is_member &= spans.first_bytes[places] == _BRACE
    if not is_member.all():
        places, after = places[is_member], after[is_member]
    return _values(spans, places, documents.skip_blanks(after + 1))


def _texts_equal(documents: Documents, text: bytes) -> tuple[Positions, Positions]:
    """Returns the bounds of the texts, names or values, that are this one, in order."""
    starts = np.empty(0, np.int64)
    if not _NOT_PLAIN.search(text):
        pairs = documents.first_quotes & documents.last_quotes.shifted(len(text) + 1)
        starts = pairs.positions()
    for offset in range(0, len(text) if len(starts) else 0, _WORD_BYTES):
        part = text[offset : offset + _WORD_BYTES]
        mask = np.uint64(256 ** len(part) - 1)
        expected = np.uint64(int.from_bytes(part, "little"))
        starts = starts[documents.words[starts + 1 + offset] & mask == expected]
    ends = starts + len(text) + 2
    if not documents.has_escapes:
        return starts, ends
    names, name_ends = documents.escaped_names
    decoded = unescape_texts(documents.content, names, name_ends)
    is_equal = np.array([each.encode() == text for each in decoded.to_pylist()], np.bool_)
    starts = np.append(starts, names[is_equal])
    order = np.argsort(starts)
    return starts[order], np.append(ends, name_ends[is_equal])[order]


def _places(spans: Spans, positions: Positions) -> Positions:
    """Returns which of the spans each position is in, -1 if none."""
    if not len(spans):
        return np.full(len(positions), -1)
    places = spans.documents.rows.ranks(positions + 1) - 1
    if len(spans) < len(spans.documents):
        by_row = np.full(len(spans.documents), -1)
        by_row[spans.rows] = np.arange(len(spans))
        places = by_row[places]
    is_inside = (spans.starts[places] < positions) & (positions < spans.ends[places])
    return np.where(is_inside, places, -1)


def _element(spans: Spans, index: int) -> Spans:
    documents = spans.documents
    arrays = spans.where(spans.first_bytes == _BRACKET)
    commas = documents.commas_at(arrays.depth + 1).positions()
    before = np.searchsorted(commas, arrays.starts)
    counts = np.searchsorted(commas, arrays.ends) - before + 1
    indexes = counts + index if index < 0 else np.full(len(arrays), index)
    is_element = (indexes >= 0) & (indexes < counts)
    places = np.flatnonzero(is_element)
    indexes, before = indexes[places], before[places]
    bounds = np.append(commas, 0)[before + indexes - 1]
    starts = documents.skip_blanks(np.where(indexes, bounds, arrays.starts[places]) + 1)
    # The only element of an empty array.
    is_value = documents.content[starts] != _BRACKET_END
    return _values(arrays, places[is_value], starts[is_value])


def _values(spans: Spans, places: Positions, starts: Positions) -> Spans:
    """Returns the values that begin at these positions inside of these spans."""
    if len(places) > 1 and not (is_last := places[1:] != places[:-1]).all():
        # A name that occurs twice has its last value.
        keep = np.append(is_last, True)
        places, starts = places[keep], starts[keep]
    depth = spans.depth + 1
    ends = spans.documents.value_ends(starts, depth)
    values = Spans(spans.documents, spans.rows[places], starts, ends, depth)
    return values.where((starts < ends) & (ends < spans.ends[places]))
