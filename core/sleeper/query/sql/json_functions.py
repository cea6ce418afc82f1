"""The functions of JSON that statements have, as functions of the engine over whole columns.

A null is one of SQL: the document is null, or the path leads to nothing, or the value is of another
type. `rewrite_json` makes paths literals, so a column of paths has one value.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import ScalarUDF, SessionContext, udf

from sleeper.datafiles.arrow import JSON_MARK, as_plain, is_json, json_storage
from sleeper.datafiles.conversions import as_numbers
from sleeper.datafiles.documents.content import read_documents
from sleeper.datafiles.documents.path import parse_path
from sleeper.datafiles.documents.spans import Spans, whole
from sleeper.datafiles.documents.values import (
    bool_values,
    float_values,
    integer_values,
    json_values,
    quoted_values,
    text_values,
    type_values,
)
from sleeper.datafiles.json_syntax import check_json

# The bytes of a part fit a processor's cache.
_PART_BYTES = 512 * 1024
_TEXT = pa.string_view()

# Results of these are JSON too, so that another function does not check them again.
_JSON = pa.field("value", _TEXT, metadata=JSON_MARK)
_FUNCTIONS: dict[str, tuple[Callable[[Spans], pa.Array], pa.DataType | pa.Field]] = {
    "json_as_text": (text_values, _TEXT),
    "json_get": (json_values, _JSON),
    "json_get_bool": (bool_values, pa.bool_()),
    "json_get_float": (float_values, pa.float64()),
    "json_get_int": (integer_values, pa.int64()),
    "json_get_json": (json_values, _JSON),
    "json_get_str": (quoted_values, _TEXT),
    "json_typeof": (type_values, pa.string()),
}


def register_json_functions(session: SessionContext) -> None:
    """Registers the functions of JSON in a session."""
    for function in _json_functions():
        session.register_udf(function)


@cache
def _json_functions() -> list[ScalarUDF]:
    return [
        udf(_over_paths(convert), [_TEXT, _TEXT], kind, "immutable", name)
        for name, (convert, kind) in _FUNCTIONS.items()
    ]


def _over_paths(
    convert: Callable[[Spans], pa.Array],
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def call(values: pa.Array, paths: pa.Array) -> pa.Array:
        path = parse_path(paths[0].as_py()) if len(paths) else ()
        texts = _documents(values)
        parts = [convert(whole(read_documents(part)).follow(path)) for part in _parts(texts)]
        return pa.concat_arrays(parts)

    return call


def _documents(values: pa.Array) -> pa.Array:
    """Returns the text of JSON. NotJsonError for other text, which is checked here."""
    if is_json(values.type):
        return json_storage(values)
    texts = as_plain(values)
    check_json(texts)
    return texts


def _parts(values: pa.Array) -> Iterator[pa.Array]:
    """Yields slices of some bytes, or of one larger value, at least one."""
    sizes = as_numbers(pc.fill_null(pc.binary_length(values), 0))
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(values) or not start:
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        yield values[start:stop] if stop > start else values[start : start + 1]
        start = max(stop, start + 1)
