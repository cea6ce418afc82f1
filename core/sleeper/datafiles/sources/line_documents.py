"""Documents of lines of JSON, whose members stand beside those of other fields.

A line of a table with a document has the members of the other fields by name. All others are those
of the document, except for `OWN_MEMBERS`, which describe a copy. A name of the document that could
be one of these has one more `~` in lines. A line that has the member of the document itself has no
other members of it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import integer_array, text_scalar
from sleeper.datafiles.json_structure import Positions, read_structure, spans
from sleeper.datafiles.json_syntax import NotJsonError, check_json
from sleeper.datafiles.sources.files import Columns
from sleeper.schema.document import DOUBLED_NAME, OWN_MEMBERS
from sleeper.schema.model import Schema

_LINE_FEED = ord("\n")
_FIRST_TILDE = r'^"(~|\\u007[eE])'


@dataclass(frozen=True, slots=True)
class LineDocuments:
    """The document of each line, null for lines without one. It is not checked."""

    name: str | None
    texts: pa.Array | None

    def put_into(self, columns: Columns) -> Columns:
        """Returns the columns with the documents. ValueError if a line has one twice."""
        if self.name is None or self.texts is None:
            return columns
        whole = columns[self.name]
        if pc.any(pc.and_(whole.is_valid(), self.texts.is_valid())).as_py():
            raise ValueError(f"members of the document beside the member {self.name!r}")
        return columns | {self.name: pc.coalesce(whole, self.texts)}


NO_DOCUMENTS = LineDocuments(None, None)


def separate_documents(block: bytes, schema: Schema) -> tuple[bytes, LineDocuments]:
    """Returns a block of lines without the members of documents, and the documents.

    ValueError if a line is not an object. The table may have no document.
    """
    if schema.document is None:
        return block, NO_DOCUMENTS
    lines, starts = _split(block)
    try:
        check_json(lines)
    except NotJsonError as error:
        raise ValueError(str(error)) from error
    structure = read_structure(block)
    if structure.objects(1) != len(lines):
        raise ValueError("a line is not an object")
    places = structure.names(level=1)
    members = structure.positions[places]
    ends = structure.ends_of_members(1)
    ends = ends[np.searchsorted(ends, members)]
    names = structure.texts(places).cast(pa.string())
    is_field = _is_one_of(names, [field.name for field in schema.fields])
    is_own = _is_one_of(names, OWN_MEMBERS) & ~is_field
    is_doubled = _flags(pc.match_substring_regex(names, DOUBLED_NAME)) & ~is_field
    owners = np.searchsorted(starts, members, side="right") - 1
    texts = spans(structure.content, members, ends).cast(pa.string())
    rest = _objects(texts, owners, is_field, len(lines))
    undoubled = pc.replace_substring_regex(texts, _FIRST_TILDE, '"')
    texts = pc.if_else(pa.array(is_doubled), undoubled, texts)
    is_member = ~(is_field | is_own)
    documents = _objects(texts, owners, is_member, len(lines))
    has_members = np.bincount(owners[is_member], minlength=len(lines)) > 0
    documents = pc.if_else(pa.array(has_members), documents, pa.scalar(None, pa.string()))
    ended = pc.binary_join_element_wise(rest, text_scalar(""), text_scalar("\n"))
    return _joined(ended), LineDocuments(schema.document.name, documents)


def _split(block: bytes) -> tuple[pa.Array, Positions]:
    """Returns the lines, with their ends, and where they start."""
    content = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(content == _LINE_FEED) + 1
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    offsets = np.append(0, ends)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(block)]
    lines = pa.Array.from_buffers(pa.binary(), len(ends), buffers)
    return lines.cast(pa.string()), offsets[:-1]


def _is_one_of(names: pa.Array, choices: list[str] | tuple[str, ...]) -> npt.NDArray[np.bool_]:
    return _flags(pc.is_in(names, pa.array(choices, pa.string())))


def _flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return flags


def _objects(
    members: pa.Array, owners: Positions, is_chosen: npt.NDArray[np.bool_], count: int
) -> pa.Array:
    """Returns the object of the chosen members of each of so many lines."""
    offsets = np.append(0, np.cumsum(np.bincount(owners[is_chosen], minlength=count)))
    chosen = members.filter(pa.array(is_chosen))
    lists = pa.ListArray.from_arrays(integer_array(offsets.astype(np.int32)), chosen)
    inside = pc.binary_join(lists, text_scalar(","))
    return pc.binary_join_element_wise(text_scalar("{"), inside, text_scalar("}"), text_scalar(""))


def _joined(lines: pa.Array) -> bytes:
    ends = integer_array(np.array([0, len(lines)], np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, lines), text_scalar(""))
    content: bytes = joined[0].as_buffer().to_pybytes()
    return content
