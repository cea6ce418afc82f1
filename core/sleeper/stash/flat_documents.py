"""The content of a stash's documents: the members of a row, and of its document beside them.

The document of a row stands whole, as the member of its field, if it is no object, has no members,
or has one with the name of another field. Otherwise its members stand beside those of the other
fields, and a name that could be one of `OWN_MEMBERS` has one more `~`. So rows can be read again.
"""

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import integer_array, text_scalar
from sleeper.datafiles.json_structure import read_structure, spans
from sleeper.datafiles.json_text import json_lines, json_values
from sleeper.schema.document import DOUBLED_NAME, OWN_MEMBERS

_SPACE = " \t"
_RESERVED_NAME = f"{DOUBLED_NAME}|^({'|'.join(OWN_MEMBERS)})$"
_TILDE = ord("~")
_Flags = npt.NDArray[np.bool_]


def document_content(rows: pa.RecordBatch, document: str | None) -> pa.Array:
    """Returns a JSON object of each row, with the names of the columns.

    `document` is the column of the document, if there is one.
    """
    names = rows.schema.names
    kept = [name for name in names if name != document]
    lines = json_lines(rows.select(kept))
    if not kept:
        lines = pa.repeat(text_scalar("{}"), rows.num_rows)
    if document is None:
        return lines
    members = _members(rows.column(document), document, names)
    has_both = pc.and_(pc.not_equal(lines, "{}"), pc.not_equal(members, ""))
    comma = pc.if_else(has_both, ",", "")
    opened = pc.binary_replace_slice(lines, -1, 2**31 - 1, "")
    return _join(opened, comma, members, text_scalar("}"))


def _members(column: pa.Array, name: str, taken: Sequence[str]) -> pa.Array:
    """Returns the members of each document without braces, empty for rows without one."""
    is_valid = column.is_valid()
    texts = pc.utf8_trim(json_values(column.drop_null()), _SPACE)
    inside, is_flat = _insides(texts, taken)
    whole = _join(text_scalar(f"{json.dumps(name, ensure_ascii=False)}:"), texts)
    members = pc.if_else(pa.array(is_flat), inside, whole)
    places = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int64())), 1)
    spread = members.take(pc.if_else(is_valid, places, pa.scalar(None, pa.int64())))
    return pc.fill_null(spread, "")


def _insides(texts: pa.Array, taken: Sequence[str]) -> tuple[pa.Array, _Flags]:
    """Returns what is between the braces of objects, and which documents' members can stand alone.

    The others have any text.
    """
    ends = integer_array(np.array([0, len(texts)], np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, texts), text_scalar(","))
    content = b"[" + joined[0].as_buffer().to_pybytes() + b"]"
    sizes = pc.binary_length(texts).to_numpy().astype(np.int64) + 1
    starts = 1 + np.append(0, np.cumsum(sizes))[:-1]
    structure = read_structure(content)
    places = structure.names(level=2)
    positions = structure.positions[places]
    owners = np.searchsorted(starts, positions, side="right") - 1
    names = structure.texts(places).cast(pa.string())
    is_reserved = _flags(pc.match_substring_regex(names, _RESERVED_NAME))
    written = pc.if_else(pa.array(is_reserved), _join(text_scalar("~"), names), names)
    is_taken = _flags(pc.is_in(written, pa.array(taken, pa.string())))
    is_flat = _flags(pc.starts_with(texts, "{"))
    is_flat &= np.bincount(owners, minlength=len(texts)) > 0
    is_flat[owners[is_taken]] = False
    doubled = positions[is_reserved & is_flat[owners]] + 1
    wider = np.insert(structure.content, doubled, _TILDE)
    stops = starts + sizes - 1
    moved = [bounds + np.searchsorted(doubled, bounds) for bounds in (starts + 1, stops - 1)]
    # A document of one digit has nothing inside.
    return spans(wider, moved[0], np.maximum(*moved)).cast(pa.string()), is_flat


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, text_scalar(""))


def _flags(column: pa.Array) -> _Flags:
    flags: _Flags = column.to_numpy(zero_copy_only=False)
    return flags.copy()
