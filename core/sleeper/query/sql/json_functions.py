"""The functions of JSON that statements have, as functions of the engine over whole columns.

A null is one of SQL: the document is null, or the path leads to nothing, or the value is of another
type. `rewrite_json` makes paths literals, so a column of paths has one value.
"""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
from datafusion import ScalarUDF, SessionContext, udf

from sleeper.datafiles.arrow import JSON_MARK, as_plain, is_json, json_storage
from sleeper.datafiles.documents.containment import containment_values
from sleeper.datafiles.documents.content import read_parts
from sleeper.datafiles.documents.parts import (
    EACH,
    KEYS,
    each_values,
    element_values,
    key_values,
    length_values,
)
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

_TEXT = pa.string_view()

# A path and a JSON text that are both valid.
_NO_ARGUMENT = "null"
_Function = Callable[[Spans, str], pa.Array]
# Results of these are JSON too, so that another function does not check them again.
_JSON = pa.field("value", _TEXT, metadata=JSON_MARK)
_FUNCTIONS: dict[str, tuple[Callable[[Spans], pa.Array], pa.DataType | pa.Field]] = {
    "json_as_text": (text_values, _TEXT),
    "json_each": (each_values, EACH),
    "json_elements": (element_values, KEYS),
    "json_get": (json_values, _JSON),
    "json_get_bool": (bool_values, pa.bool_()),
    "json_get_float": (float_values, pa.float64()),
    "json_get_int": (integer_values, pa.int64()),
    "json_get_json": (json_values, _JSON),
    "json_get_str": (quoted_values, _TEXT),
    "json_keys": (key_values, KEYS),
    "json_length": (length_values, pa.int64()),
    "json_typeof": (type_values, pa.string()),
}


def register_json_functions(session: SessionContext, checks_all: bool) -> None:
    """Registers the functions of JSON in a session.

    They check text that is not from a field of `JSONType`, and with `checks_all` all text.
    """
    for function in _json_functions(checks_all):
        session.register_udf(function)


@cache
def _json_functions(checks_all: bool) -> list[ScalarUDF]:
    def make(name: str, function: _Function, kind: pa.DataType | pa.Field) -> ScalarUDF:
        over_column = _over_column(function, checks_all)
        return udf(over_column, [_TEXT, _TEXT], kind, "immutable", name)

    paths = [make(name, _at_path(convert), kind) for name, (convert, kind) in _FUNCTIONS.items()]
    return [*paths, make("json_contains", containment_values, pa.bool_())]


def _at_path(convert: Callable[[Spans], pa.Array]) -> _Function:
    return lambda spans, path: convert(spans.follow(parse_path(path)))


def _over_column(function: _Function, checks_all: bool) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def call(values: pa.Array, arguments: pa.Array) -> pa.Array:
        argument = arguments[0].as_py() if len(arguments) else _NO_ARGUMENT
        texts = _documents(values, checks_all)
        parts = [function(whole(part), argument) for part in read_parts(texts)]
        return pa.concat_arrays(parts)

    return call


def _documents(values: pa.Array, checks_all: bool) -> pa.Array:
    """Returns the text of JSON. NotJsonError for other text, which is checked here."""
    is_marked = is_json(values.type)
    texts = json_storage(values) if is_marked else as_plain(values)
    if checks_all or not is_marked:
        check_json(texts)
    return texts
