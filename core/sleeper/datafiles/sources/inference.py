"""The schema of users' files that belong to no table, from their footers or first rows.

Parquet files name their types. The types of CSV are the first that all values of the first block
fit: LongType, DoubleType, BooleanType, DateType, TimestampType, StringType. JSON lines have the
types of their values; text stays text.
"""

import contextlib
import io
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as pj
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.casts import UnfitError
from sleeper.datafiles.sources.files import SourceFormat, source_format
from sleeper.datafiles.sources.json_hazards import check_depth, check_objects
from sleeper.datafiles.sources.parquet import UNREADABLE
from sleeper.datafiles.sources.text import open_text
from sleeper.datafiles.text_values import parse_values
from sleeper.errors import InvalidRequestError, classify_error, did_you_mean
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from sleeper.storage.bucket_folder import S3File, SourceFile

_SAMPLE_BYTES = 4 * 1024**2
_TYPES_OF_TEXT = (
    PrimitiveType.LONG,
    PrimitiveType.DOUBLE,
    PrimitiveType.BOOLEAN,
    PrimitiveType.DATE,
    PrimitiveType.TIMESTAMP,
)
# Numbers such as 007 are codes, whose zeros count.
_CODE = r"^[+-]?0\d"


def infer_schema(files: Iterable[SourceFile], keys: Sequence[str]) -> Schema | None:
    """Returns the schema of the first file that has columns, None if none has.

    A column without values has its type from the next file. `keys` names the row keys, none for the
    first column. All other fields may be null. InvalidRequestError names a key that no column has,
    and a column whose type no field has.
    """
    first: SourceFile | None = None
    kinds: dict[str, pa.Field] = {}
    for file in files:
        columns = _read_columns(file)
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
            "times, dates, decimals, or lists or maps of them)"
        )
    return kind


def find_field_type(kind: pa.DataType) -> FieldType | None:
    """Returns the type of a field that has all values of the Arrow type, None if there is none."""
    if pa.types.is_dictionary(kind):
        return find_field_type(kind.value_type)
    for is_kind, found in _FIELD_TYPES:
        if is_kind(kind):
            return found
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _find_element_type(kind.value_type)
        return None if element is None else ListType(element)
    if pa.types.is_map(kind):
        key, value = _find_element_type(kind.key_type), _find_element_type(kind.item_type)
        return None if key is None or value is None else MapType(key, value)
    return None


def _find_element_type(kind: pa.DataType) -> PrimitiveType | DecimalType | None:
    found = find_field_type(kind)
    return found if isinstance(found, PrimitiveType | DecimalType) else None


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


def _read_columns(file: SourceFile) -> pa.Schema:
    kind = source_format(file)
    try:
        match kind:
            case SourceFormat.PARQUET:
                content = file.open_ranges() if isinstance(file, S3File) else file
                return pq.read_schema(content)
            case SourceFormat.CSV:
                return _read_csv_columns(file)
            case SourceFormat.JSON_LINES:
                return _read_json_columns(file)
    except UNREADABLE as error:
        text = f"file {file}: not a readable {kind.name.replace('_', ' ').lower()} file: {error}"
        raise classify_error(error, text, InvalidRequestError) from error


def _read_csv_columns(file: SourceFile) -> pa.Schema:
    sample = _read_sample(file)
    if not sample.strip():
        return pa.schema([])
    names = _read_csv(sample, ()).schema.names
    text = _read_csv(sample, names)
    return pa.schema([(name, _type_of_text(text.column(name))) for name in names])


def _read_csv(sample: bytes, text_columns: Sequence[str]) -> pa.Table:
    return csv.read_csv(
        io.BytesIO(sample),
        read_options=csv.ReadOptions(block_size=len(sample) + 1, use_threads=False),
        parse_options=csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(text_columns, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _type_of_text(column: pa.ChunkedArray) -> pa.DataType:
    values = column.drop_null().combine_chunks()
    if not len(values):
        return pa.null()
    if pc.any(pc.match_substring_regex(values, _CODE)).as_py():
        return pa.string()
    for kind in _TYPES_OF_TEXT:
        with contextlib.suppress(pa.ArrowException, UnfitError):
            parse_values(values, kind)
            return arrow_type(kind)
    return pa.string()


def _read_json_columns(file: SourceFile) -> pa.Schema:
    sample = _read_sample(file)
    if not sample.strip():
        return pa.schema([])
    check_objects(line for line in sample.split(b"\n") if line.strip())
    check_depth(sample)
    read_options = pj.ReadOptions(block_size=len(sample) + 1, use_threads=False)
    found = pj.read_json(io.BytesIO(sample), read_options=read_options).schema
    # Arrow takes text for a time if all of it is one.
    return pa.schema(
        [(f.name, pa.string() if pa.types.is_timestamp(f.type) else f.type) for f in found]
    )


def _read_sample(file: SourceFile) -> bytes:
    """Returns the first whole lines of a file."""
    with open_text(file) as stream:
        sample = stream.read(_SAMPLE_BYTES)
        if len(sample) < _SAMPLE_BYTES:
            return sample
    end = sample.rfind(b"\n")
    # A quoted value of CSV may have line ends. Quotes within JSON are escaped or in pairs.
    while end > 0 and sample.count(b'"', 0, end) % 2:
        end = sample.rfind(b"\n", 0, end)
    return sample[: end + 1] or sample
