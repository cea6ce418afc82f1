"""Parts of a content as columns of text."""

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.documents.bits import Positions
from sleeper.datafiles.json_syntax import NotJsonError

# The columnar format of Arrow specifies the members of a view.
_INLINE_BYTES = 12
_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("rest", "<u8")])
_MASKS = np.array([256**size - 1 for size in range(9)], np.uint64)
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a content that has at least 16 bytes after the last one, and the row of each."""

    content: Bytes
    rows: Positions
    starts: Positions
    ends: Positions


def view_parts(count: int, *sources: Parts) -> pa.Array:
    """Returns a column of views of `count` rows with these parts, null in other rows.

    The last of several parts of one row is its value.
    """
    views = np.zeros(count, _VIEW)
    is_valid = np.zeros(count, np.bool_)
    for number, parts in enumerate(sources):
        if len(parts.rows) == count:
            is_valid[:] = True
            _fill(views, parts, number)
        else:
            is_valid[parts.rows] = True
            some = np.empty(len(parts.rows), _VIEW)
            _fill(some, parts, number)
            views[parts.rows] = some
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    contents = (pa.py_buffer(each.content) for each in sources)
    return pa.Array.from_buffers(
        pa.string_view(), count, [validity, pa.py_buffer(views), *contents]
    )


def _fill(views: npt.NDArray[np.void], parts: Parts, number: int) -> None:
    content, starts = parts.content, parts.starts
    sizes = parts.ends - starts
    words = np.ndarray(len(content) - 7, "<u8", content.data, strides=(1,))
    views["size"] = sizes
    views["prefix"] = words[starts] & _MASKS[np.minimum(sizes, 4)]
    is_inline = sizes <= _INLINE_BYTES
    inline = words[starts + 4] & _MASKS[np.clip(sizes - 4, 0, 8)]
    place = starts.view(np.uint64) << np.uint64(32) | np.uint64(number)
    views["rest"] = np.where(is_inline, inline, place)


def whole_parts(rows: Positions, texts: pa.Array) -> Parts:
    """Returns the texts of a column as the parts of these rows."""
    offsets_buffer, data = texts.cast(pa.large_string()).buffers()[1:]
    offsets = np.frombuffer(offsets_buffer, np.int64, len(texts) + 1)
    content = np.zeros(int(offsets[-1]) + 16, np.uint8)
    content[: int(offsets[-1])] = np.frombuffer(data, np.uint8, int(offsets[-1]))
    return Parts(content, rows, offsets[:-1], offsets[1:])


def unescape_texts(content: Bytes, starts: Positions, ends: Positions) -> pa.Array:
    """Returns quoted texts of the content as plain text. NotJsonError for invalid ones."""
    import pyarrow.json as arrow_json

    if not len(starts):
        return pa.array([], pa.string())
    parts = Parts(content, np.arange(len(starts)), starts, ends)
    quoted = view_parts(len(starts), parts).cast(pa.string())
    lines = pc.binary_join_element_wise('{"":', quoted, "}", "")
    offsets = np.array([0, len(lines)], np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), lines), "\n")[0].as_buffer()
    kinds = pa.schema([("", pa.string())])
    try:
        table = arrow_json.read_json(
            io.BytesIO(joined),
            arrow_json.ReadOptions(use_threads=False, block_size=max(joined.size + 1, 1024)),
            arrow_json.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid as error:
        raise NotJsonError(f"not JSON: {error}") from error
    return table.column(0).combine_chunks()
