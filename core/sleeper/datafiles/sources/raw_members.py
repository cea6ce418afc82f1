"""The text of members of `JSONType` in lines of JSON, which parsers of columns would not keep.

The members are taken out of a block of lines before it is parsed: a `0` and space stand for each.
So the parser finds the lines that have the member, and any fault of the rest of the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.json_structure import Positions, read_structure, spans
from sleeper.datafiles.sources.files import Columns
from sleeper.schema.model import Field, PrimitiveType

_LINE_FEED, _SPACE, _ZERO = b"\n 0"
_JSON_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class RawMembers:
    """The texts of each field's members, in the order of their lines. They are not checked."""

    texts: dict[str, pa.Array]

    def put_into(self, columns: Columns) -> Columns:
        """Returns the columns with the texts in place of numbers, and null for missing members.

        ValueError if a line has a member twice.
        """
        result = dict(columns)
        for name, texts in self.texts.items():
            is_present = columns[name].is_valid()
            if columns[name].null_count + len(texts) != len(is_present):
                raise ValueError(f"the member {name!r} is not once in each line")
            places = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int64())), 1)
            result[name] = texts.take(pc.if_else(is_present, places, pa.scalar(None, pa.int64())))
        return result


def separate_raw_members(block: bytes, fields: Sequence[Field]) -> tuple[bytes, RawMembers]:
    """Returns a block of lines with other values of the fields of `JSONType`, and their texts.

    ValueError if the structure of the lines does not tell.
    """
    names = [field.name for field in fields if field.type is PrimitiveType.JSON]
    if not names:
        return block, RawMembers({})
    structure = read_structure(block)
    places = structure.names(level=1)
    written = structure.texts(places)
    ends = structure.ends_of_members(1)
    rest = np.frombuffer(bytearray(block), np.uint8)
    texts = {}
    for name in names:
        is_named = pc.equal(written, pa.scalar(name.encode(), pa.binary()))
        starts = structure.positions[places[is_named.to_numpy(zero_copy_only=False)] + 1] + 1
        next_ends = np.searchsorted(ends, starts)
        if len(starts) and next_ends[-1] == len(ends):
            raise ValueError("an object without an end")
        stops = ends[next_ends]
        _check_spans(structure.content, starts, stops)
        parts = spans(structure.content, starts, stops).cast(pa.string())
        texts[name] = pc.utf8_trim(parts, _JSON_SPACE)
        _fill(rest, starts, stops)
    return rest.tobytes(), RawMembers(texts)


def _check_spans(content: np.ndarray, starts: Positions, stops: Positions) -> None:
    if (starts >= stops).any():
        raise ValueError("a member without a value")
    line_ends = np.flatnonzero(content == _LINE_FEED)
    if (np.searchsorted(line_ends, starts) != np.searchsorted(line_ends, stops)).any():
        raise ValueError("a value with a line end")


def _fill(content: np.ndarray, starts: Positions, stops: Positions) -> None:
    """Replaces the parts by a zero and space."""
    steps = np.zeros(len(content) + 1, np.int8)
    steps[starts], steps[stops] = 1, -1
    content[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)] = _SPACE
    content[starts] = _ZERO
