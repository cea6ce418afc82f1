"""The structure of JSON texts, a whole block or column at a time.

A *token* is a brace, bracket, comma or colon outside of quoted text, or a quoted text. The *level*
of a token is the number of objects and arrays around it; an opening or closing bracket has the
level of what is inside of it. A *name* is a quoted text before a colon. Nothing here checks the
grammar: of text that is not JSON, the tokens are any.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_QUOTE, _BACKSLASH, _COLON, _COMMA = (ord(each) for each in '"\\:,')
_BRACE, _BRACKET, _BRACE_END, _BRACKET_END = (ord(each) for each in "{[}]")
_IS_TOKEN = np.zeros(256, np.bool_)
_IS_TOKEN[[_QUOTE, _COLON, _COMMA, _BRACE, _BRACKET, _BRACE_END, _BRACKET_END]] = True
# What a byte adds to the levels of the next tokens.
_STEPS = np.zeros(256, np.int8)
_STEPS[[_BRACE, _BRACKET]] = 1
_STEPS[[_BRACE_END, _BRACKET_END]] = -1


@dataclass(frozen=True, slots=True)
class JsonStructure:
    """The tokens of a content by position, with their bytes and levels.

    `ends` has the position of the last quote of each quoted text, and any for other tokens.
    """

    content: npt.NDArray[np.uint8]
    positions: Positions
    ends: Positions
    kinds: npt.NDArray[np.uint8]
    levels: npt.NDArray[np.int32]

    @property
    def depth(self) -> int:
        """The greatest level."""
        return int(self.levels.max(initial=0))

    def separators(self, level: int) -> Positions:
        """Returns the positions of the commas of a level."""
        result: Positions = self.positions[(self.kinds == _COMMA) & (self.levels == level)]
        return result

    def objects(self, level: int) -> int:
        """Returns the number of objects whose members are of a level."""
        return int(np.count_nonzero((self.kinds == _BRACE) & (self.levels == level)))

    def ends_of_members(self, level: int) -> Positions:
        """Returns the positions of the bytes after members of objects of a level."""
        is_end = (self.kinds == _COMMA) | (self.kinds == _BRACE_END)
        result: Positions = self.positions[is_end & (self.levels == level)]
        return result

    def names(self, level: int | None = None) -> Positions:
        """Returns the places, among the tokens, of all names, or of those of a level."""
        is_name = (self.kinds[:-1] == _QUOTE) & (self.kinds[1:] == _COLON)
        if level is not None:
            is_name &= self.levels[:-1] == level
        return np.flatnonzero(is_name)

    def texts(self, places: Positions) -> pa.Array:
        """Returns the bytes between the quotes of these tokens, decoded if they have escapes."""
        starts, ends = self.positions[places] + 1, self.ends[places]
        texts = spans(self.content, starts, ends)
        values = texts.buffers()[2]
        if values is None or b"\\" not in values.to_pybytes():
            return texts
        # Escapes in names are rare, so only those become Python objects.
        names = (_unescape(each) if b"\\" in each else each for each in texts.to_pylist())
        return pa.array(list(names), pa.binary())

    def find_duplicate(self) -> bytes | None:
        """Returns a name that an object has twice; None if there is none."""
        places = self.names()
        openings = np.flatnonzero(self.kinds == _BRACE)
        # Tokens of one level are in the order of their objects, so the openings before a name count
        # its object.
        tokens = np.concatenate((openings, places))
        order = np.lexsort((tokens, self.levels[tokens]))
        is_name = order >= len(openings)
        objects = np.cumsum(~is_name)[is_name]
        names = places[order[is_name] - len(openings)]
        codes = self.texts(names).dictionary_encode().indices.to_numpy().astype(np.int64)
        pairs = objects * (int(codes.max(initial=0)) + 1) + codes
        by_pair = np.argsort(pairs, kind="stable")
        is_same = pairs[by_pair[1:]] == pairs[by_pair[:-1]]
        if not is_same.any():
            return None
        first = by_pair[1:][is_same].min()
        name: bytes = self.texts(names[first : first + 1])[0].as_py()
        return name


def read_structure(content: bytes) -> JsonStructure:
    """Returns the tokens of a content. ValueError if a quoted text has no end."""
    values = np.frombuffer(content, np.uint8)
    positions = np.flatnonzero(_IS_TOKEN[values])
    if b"\\" in content:
        positions = positions[~_is_escaped(values, positions)]
    kinds = values[positions]
    is_quote = kinds == _QUOTE
    is_inside = np.logical_xor.accumulate(is_quote) if len(is_quote) else is_quote
    if len(is_inside) and is_inside[-1]:
        raise ValueError("a text without its last quote")
    quotes = positions[is_quote]
    is_kept = is_inside == is_quote
    positions, kinds = positions[is_kept], kinds[is_kept]
    ends = positions.copy()
    ends[kinds == _QUOTE] = quotes[1::2]
    steps = _STEPS[kinds]
    levels = np.cumsum(steps, dtype=np.int32)
    return JsonStructure(values, positions, ends, kinds, levels + (steps < 0))


def spans(content: npt.NDArray[np.uint8], starts: Positions, ends: Positions) -> pa.Array:
    """Returns these parts of a content, which are in order and do not overlap, as bytes."""
    if not len(starts):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[::2], bounds[1::2] = starts, ends
    parts = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    )
    return parts.take(pa.array(np.arange(0, len(bounds) - 1, 2)))


def _is_escaped(values: npt.NDArray[np.uint8], positions: Positions) -> Flags:
    """Returns whether an odd number of backslashes precedes each position."""
    slashes = np.flatnonzero(values == _BACKSLASH)
    is_first = np.append(True, np.diff(slashes) != 1)
    firsts = slashes[is_first]
    lengths = np.diff(np.append(np.flatnonzero(is_first), len(slashes)))
    ends = (firsts + lengths)[lengths % 2 == 1]
    result: Flags = np.isin(positions, ends, assume_unique=True)
    return result


def _unescape(name: bytes) -> bytes:
    decoded: Any = json.loads(b'"' + name + b'"')
    return str(decoded).encode(errors="surrogatepass")
