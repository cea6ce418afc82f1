"""The Arrow types of the columns that a statement returns."""

import pyarrow as pa
from datafusion import DataFrame

from sleeper.datafiles.arrow import is_json

# The engine marks their columns as JSON if one of the values may be.
_MIXING_NODES = ("Union", "WindowAggr", "RecursiveQuery")


def result_types(frame: DataFrame) -> pa.Schema:
    """Returns the schema with strings and bytes instead of views, and unique names.

    A column of a field of `JSONType` is one of JSON, and a result of an expression on it is text.
    All are text in statements that may mix such values with others.
    """
    seen: set[str] = set()
    fields = []
    has_json = any(is_json(each.type) for each in frame.schema()) and not _mixes(frame)
    for field in frame.schema():
        name, number = field.name, 1
        while name in seen:
            number += 1
            name = f"{field.name}_{number}"
        seen.add(name)
        fields.append(pa.field(name, _plain_type(field.type, has_json), field.nullable))
    return pa.schema(fields)


def _mixes(frame: DataFrame) -> bool:
    lines = frame.logical_plan().display_indent().splitlines()
    return any(line.strip().startswith(_MIXING_NODES) for line in lines)


def _plain_type(kind: pa.DataType, has_json: bool) -> pa.DataType:
    if is_json(kind):
        return pa.json_() if has_json else pa.string()
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type, has_json)))
    return kind
