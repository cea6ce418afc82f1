"""Columns of `JSONType`: text, of which each value is one JSON value.

The text stays as it was written. It is checked in blocks: msgspec follows the grammar without
making values, and `JsonStructure` has the levels, the names of each object, and the ends of values.
Text with half of a surrogate pair is not Unicode, so it is refused.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import as_numbers, integer_array, text_scalar
from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.datafiles.json_structure import read_structure


class NotJsonError(Exception):
    """A text is not JSON, or beyond the limits."""


_PART_BYTES = 1024 * 1024
# Values are checked as the elements of an array that is the member of an object. The last element
# is another one, because an array may have none.
_BEFORE, _AFTER, _LEVELS = b'{"":[', b",0]}", 2


class _Nothing(msgspec.Struct):
    """An object whose members are all skipped."""


_SYNTAX = msgspec.json.Decoder(_Nothing)


def check_json(column: pa.Array, limits: JsonLimits = NO_LIMITS) -> None:
    """Raises NotJsonError unless all values of a column of text are JSON within the limits."""
    values = column.drop_null()
    sizes = as_numbers(pc.binary_length(values))
    largest = int(sizes.max(initial=0))
    if largest > limits.bytes:
        raise NotJsonError(f"JSON of {largest} bytes (maximum {limits.bytes})")
    for start, stop in _parts(sizes):
        _check_part(values.slice(start, stop - start), sizes[start:stop], limits)


def _parts(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the bounds of parts of some bytes, or of one larger value."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        stop = max(stop, start + 1)
        yield start, stop
        start = stop


def _check_part(values: pa.Array, sizes: np.ndarray, limits: JsonLimits) -> None:
    content = _BEFORE + _joined(values) + _AFTER
    try:
        structure = read_structure(content)
        if structure.depth - _LEVELS > limits.depth:
            raise NotJsonError(f"JSON of more than {limits.depth} levels")
        _SYNTAX.decode(content)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"not JSON: {_reason(error)}") from error
    between = np.cumsum(sizes + 1, dtype=np.int64) + len(_BEFORE) - 1
    # A value that ends the array, as in `1],"a":[2`, puts a comma between the object's members.
    is_one_array = not len(structure.separators(_LEVELS - 1))
    if not (is_one_array and np.array_equal(structure.separators(_LEVELS), between)):
        raise NotJsonError("not JSON: more than one value")
    name = structure.find_duplicate()
    if name is not None:
        raise NotJsonError(f"JSON with the member {name.decode(errors='replace')!r} twice")


def _joined(values: pa.Array) -> bytes:
    ends = integer_array(np.array([0, len(values)], np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, values), text_scalar(","))
    content: bytes = joined[0].as_buffer().to_pybytes()
    return content


def _reason(error: Exception) -> str:
    """Returns the reason without its byte, which is one of all values."""
    return str(error).removeprefix("JSON is malformed: ").partition(" (byte ")[0]
