"""The members of objects and the elements of arrays, as columns."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sleeper.datafiles.documents.bits import Flags, Positions
from sleeper.datafiles.documents.content import read_documents
from sleeper.datafiles.documents.spans import Spans, whole
from sleeper.datafiles.documents.texts import Parts, unescape_texts, view_parts
from sleeper.datafiles.documents.values import by_row

_COLON, _BRACE, _BRACKET, _BRACE_END, _BRACKET_END = (ord(each) for each in ":{[}]")
EACH = pa.list_(pa.struct({"key": pa.string(), "value": pa.string()}))
"""The type of `each_values`."""
KEYS = pa.list_(pa.string())
"""The type of `key_values`."""


@dataclass(frozen=True, slots=True)
class Children:
    """The members of objects, or the elements of arrays: which of the spans each is in, in order.

    `name_starts` and `name_ends` are the bounds of quoted names, those of a value for elements.
    """

    spans: Spans
    places: Positions
    starts: Positions
    ends: Positions
    name_starts: Positions
    name_ends: Positions

    def where(self, flags: Flags) -> "Children":
        """Returns the children that have the flag."""
        return Children(
            self.spans,
            self.places[flags],
            self.starts[flags],
            self.ends[flags],
            self.name_starts[flags],
            self.name_ends[flags],
        )

    @property
    def counts(self) -> Positions:
        """The number of children of each of the spans."""
        return np.bincount(self.places, minlength=len(self.spans)).astype(np.int64)

    def names(self) -> pa.Array:
        """Returns the names of members."""
        content = self.spans.documents.content
        return unescape_texts(content, self.name_starts, self.name_ends)

    def texts(self) -> pa.Array:
        """Returns the values, as they are written."""
        count = len(self.places)
        content = self.spans.documents.content
        parts = Parts(content, np.arange(count), self.starts, self.ends)
        return view_parts(count, parts).cast(pa.string())

    def documents(self) -> Spans:
        """Returns the values as documents of their own."""
        return whole(read_documents(self.texts()))


def members(spans: Spans) -> Children:
    """Returns the members of the objects, of which each of the spans is one."""
    documents, depth = spans.documents, spans.depth + 1
    starts = documents.first_quotes.positions()
    starts = starts[documents.depths(starts) == depth]
    places, is_inside = _places(spans, starts)
    starts, places = starts[is_inside], places[is_inside]
    ends = documents.last_quotes.next_positions(starts) + 1
    after = documents.skip_blanks(ends)
    is_name = documents.content[after] == _COLON
    starts, ends, places = starts[is_name], ends[is_name], places[is_name]
    values = documents.skip_blanks(after[is_name] + 1)
    return Children(spans, places, values, documents.value_ends(values, depth), starts, ends)


def elements(spans: Spans) -> Children:
    """Returns the elements of the arrays, of which each of the spans is one."""
    documents, depth = spans.documents, spans.depth + 1
    commas = documents.commas_at(depth).positions()
    places, is_inside = _places(spans, commas)
    before = np.append(spans.starts, commas[is_inside])
    places = np.append(np.arange(len(spans)), places[is_inside])
    order = np.argsort(before, kind="stable")
    starts, places = documents.skip_blanks(before[order] + 1), places[order]
    # An empty array has no comma and no element.
    is_element = documents.content[starts] != _BRACKET_END
    starts, places = starts[is_element], places[is_element]
    ends = documents.value_ends(starts, depth)
    return Children(spans, places, starts, ends, starts, ends)


def _places(spans: Spans, positions: Positions) -> tuple[Positions, Flags]:
    """Returns which of the spans, in order, is the last one before each position.

    Returns also whether the position is inside of it.
    """
    places = np.searchsorted(spans.starts, positions) - 1
    is_inside = places >= 0
    if len(spans):
        is_inside &= positions < spans.ends[places]
    return places, is_inside


def objects_of(spans: Spans) -> Spans:
    """Returns those that are objects."""
    return spans.where(spans.first_bytes == _BRACE)


def arrays_of(spans: Spans) -> Spans:
    """Returns those that are arrays."""
    return spans.where(spans.first_bytes == _BRACKET)


def length_values(spans: Spans) -> pa.Array:
    """Returns the number of members or elements, null for values that have none."""
    nested = spans.where((spans.first_bytes | 0x20) == _BRACE)
    documents, depth = spans.documents, spans.depth + 1
    commas = documents.commas_at(depth)
    between = commas.ranks(nested.ends) - commas.ranks(nested.starts)
    after = documents.content[documents.skip_blanks(nested.starts + 1)]
    is_empty = (after == _BRACE_END) | (after == _BRACKET_END)
    is_valid, (counts,) = by_row(nested, between + ~is_empty)
    return pa.array(counts, mask=~is_valid)


def key_values(spans: Spans) -> pa.Array:
    """Returns the names of the members of objects in order, null for other values."""
    children = members(objects_of(spans))
    return _lists(children, children.names(), KEYS)


def each_values(spans: Spans) -> pa.Array:
    """Returns the members of objects in order, null for other values."""
    children = members(objects_of(spans))
    pairs = pa.StructArray.from_arrays(
        [children.names(), children.texts()], fields=list(EACH.value_type)
    )
    return _lists(children, pairs, EACH)


def element_values(spans: Spans) -> pa.Array:
    """Returns the elements of arrays in order, null for other values."""
    children = elements(arrays_of(spans))
    return _lists(children, children.texts(), KEYS)


def _lists(children: Children, values: pa.Array, kind: pa.DataType) -> pa.Array:
    is_valid, (counts,) = by_row(children.spans, children.counts)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    nulls = pa.array(~is_valid)
    return pa.ListArray.from_arrays(pa.array(offsets), values, kind, mask=nulls)
