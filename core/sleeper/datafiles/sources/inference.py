"""The schema of users' files that belong to no table, from their footers or first rows.

`samples` has the types of columns. Text of JSON lines stays text here.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import is_json
from sleeper.datafiles.sources.samples import sample_file
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from sleeper.storage.bucket_folder import SourceFile

_SAMPLE_BYTES = 4 * 1024**2


def infer_schema(files: Iterable[SourceFile], keys: Sequence[str]) -> Schema | None:
    """Returns the schema of the first file that has columns, None if none has.

    A column without values has its type from the next file. `keys` names the row keys, none for the
    first column. All other fields may be null. InvalidRequestError names a key that no column has,
    and a column whose type no field has.
    """
    first: SourceFile | None = None
    kinds: dict[str, pa.Field] = {}
    for file in files:
        columns = sample_file(file, _SAMPLE_BYTES).columns
        if first is None and columns.names:
            first, kinds = file, {each.name: each for each in columns}
        for each in columns:
            if each.name in kinds and pa.types.is_null(kinds[each.name].type):
                kinds[each.name] = each
        if kinds and not any(pa.types.is_null(each.type) for each in kinds.values()):
            break
    return None if first is None else _make_schema(first, list(kinds.values()), keys)


def _make_schema(file: SourceFile, columns: Sequence[pa.Field], keys: Sequence[str]) -> Schema:
    fields = {each.name: _make_field(file, each) for each in columns}
    names = list(keys) or list(fields)[:1]
    for name in names:
        if name not in fields:
            near = did_you_mean(name, fields)
            raise InvalidRequestError(f"file {file} has no column {name!r} to be a key{near}")
    row_keys = tuple(Field(name, fields[name]) for name in names)
    values = (Field(name, kind, True) for name, kind in fields.items() if name not in names)
    return Schema(row_keys, (), tuple(values))


def _make_field(file: SourceFile, column: pa.Field) -> FieldType:
    kind = find_field_type(column.type)
    if kind is None:
        raise InvalidRequestError(
            f"file {file}: column {column.name!r} is {column.type} (expected numbers, text, bytes, "
            "times, dates, decimals, JSON, or lists, maps or structs of them)"
        )
    return kind


def find_field_type(kind: pa.DataType) -> FieldType | None:
    """Returns the type of a field that has all values of the Arrow type, None if there is none.

    It is `JSONType` for JSON, structs, and lists and maps of other lists, maps and structs.
    """
    if is_json(kind) or pa.types.is_struct(kind):
        return PrimitiveType.JSON
    if pa.types.is_dictionary(kind):
        return find_field_type(kind.value_type)
    for is_kind, each in _FIELD_TYPES:
        if is_kind(kind):
            return each
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _find_element_type(kind.value_type)
        return PrimitiveType.JSON if element is None else ListType(element)
    if pa.types.is_map(kind):
        key, value = _find_element_type(kind.key_type), _find_element_type(kind.item_type)
        return PrimitiveType.JSON if key is None or value is None else MapType(key, value)
    return None


def _find_element_type(kind: pa.DataType) -> PrimitiveType | DecimalType | None:
    """Returns None for elements that lists and maps of a table cannot have."""
    result = find_field_type(kind)
    if result is PrimitiveType.JSON:
        return None
    return result if isinstance(result, PrimitiveType | DecimalType) else None


_FIELD_TYPES = (
    (pa.types.is_boolean, PrimitiveType.BOOLEAN),
    (
        lambda kind: kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()),
        PrimitiveType.INT,
    ),
    (pa.types.is_integer, PrimitiveType.LONG),
    (lambda kind: kind in (pa.float16(), pa.float32()), PrimitiveType.FLOAT),
    (pa.types.is_floating, PrimitiveType.DOUBLE),
    (
        lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null()),
        PrimitiveType.STRING,
    ),
    (
        lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()),
        PrimitiveType.BYTE_ARRAY,
    ),
    (pa.types.is_timestamp, PrimitiveType.TIMESTAMP),
    (pa.types.is_date, PrimitiveType.DATE),
)


# What the values match, what they look like, and the form that would be parsed.
_FORMS = (
    (r"^\d{1,2}\.\d{1,2}\.\d{4}$", "dates such as 24.12.2025", "2025-12-24"),
    (r"^\d{1,2}/\d{1,2}/\d{4}$", "dates such as 12/24/2025", "2025-12-24"),
    (r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$", "numbers with a decimal comma", "1.5"),
)


def describe_foreign_values(rows: pa.Table) -> Iterator[str]:
    """Yields a sentence for each column of text that consists of such values."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        values = column.drop_null() if pa.types.is_string(field.type) else None
        for form, looks, expected in _FORMS if values else ():
            if pc.all(pc.match_substring_regex(values, form)).as_py():
                yield (
                    f"column {field.name!r} looks like {looks}, and becomes text (convert the "
                    f"values to the form {expected} to give it another type)"
                )
