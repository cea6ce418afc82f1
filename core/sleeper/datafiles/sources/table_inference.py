"""The schema of a new table like users' files or rows: all of their columns, and the chosen keys.

Columns of one name have one type: that of all, or the next wider one (LongType and DoubleType
become DoubleType, others StringType) if the rows of every file can be read as it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import is_json
from sleeper.datafiles.casts import is_castable
from sleeper.datafiles.sources.files import SourceFormat
from sleeper.datafiles.sources.inference import find_field_type
from sleeper.datafiles.sources.parquet import find_null, read_head
from sleeper.datafiles.sources.samples import FileSample, sample_file
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

_FILES_MAX = 1000
_SAMPLE_BYTES_MAX = 4 * 1024**2
_SAMPLE_BYTES_MIN = 64 * 1024
_ALL_SAMPLES_BYTES = 64 * 1024**2
_NUMBERS = frozenset(
    {PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.FLOAT, PrimitiveType.DOUBLE}
)


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The key fields of a new table, and how its files are read.

    `types` replace those of columns.
    """

    row_keys: tuple[str, ...]
    sort_keys: tuple[str, ...] = ()
    types: Mapping[str, FieldType] = field(default_factory=dict)
    options: SourceOptions = DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class InferredTable:
    """The schema like `files` files, of which some were sampled."""

    schema: Schema
    samples: tuple[FileSample, ...]
    files: int

    def first_rows(self, count: int) -> pa.Table | None:
        """Returns the first rows of the first file that has some, as they are in the file."""
        for sample in self.samples:
            if sample.row_count:
                rows = read_head(sample.path, count) if sample.rows is None else sample.rows
                return rows.slice(0, count)
        return None


def infer_from_files(files: Sequence[SourceFile], request: TableRequest) -> InferredTable:
    """Returns the schema of a table for the files, from a bounded part of them.

    Value fields are nullable, except columns of Parquet that never are. InvalidRequestError names
    the file and column of a key without a value, of a type that no field has, and of types that
    do not go together.
    """
    sampled = files[:: -(-len(files) // _FILES_MAX)] if files else files
    room = _ALL_SAMPLES_BYTES // max(len(sampled), 1)
    bytes_max = min(max(room, _SAMPLE_BYTES_MIN), _SAMPLE_BYTES_MAX)
    samples = tuple(sample_file(file, bytes_max, request.options, True) for file in sampled)
    sources = [_file_source(each) for each in samples if each.columns.names]
    if not sources:
        raise InvalidRequestError("the files have no columns (expected a file with some)")
    schema = _make_schema(sources, request)
    for sample in samples:
        if sample.columns.names:
            _check_keys(sample, schema)
    return InferredTable(schema, samples, len(files))


def infer_from_arrow(columns: pa.Schema, rows: pa.Table | None, request: TableRequest) -> Schema:
    """Returns the schema of a table for Arrow data, as `infer_from_files` does for files."""
    schema = _make_schema([_Source("(in-memory rows)", columns, frozenset())], request)
    for key in schema.keys:
        if rows is not None and rows.column(key.name).null_count:
            row = 1 + pc.index(rows.column(key.name).is_null(), True).as_py()
            raise _null_key_error("(in-memory rows)", row, key.name)
    return schema


@dataclass(frozen=True, slots=True)
class _Source:
    """Columns of one origin. Those of `texts` are text, from which other types are parsed."""

    name: str
    columns: pa.Schema
    texts: frozenset[str]
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    source: _Source
    column: pa.Field
    type: FieldType | None

    def can_be(self, kind: FieldType) -> bool:
        """Whether the rows can be read as that type."""
        if self.type in (None, kind):
            return True
        if self.column.name in self.source.texts:
            return not isinstance(kind, ListType | MapType)
        if self.source.is_json and kind is PrimitiveType.JSON:
            return True
        if self.source.is_json:
            return self.type in _NUMBERS and (
                kind in _NUMBERS or not isinstance(kind, PrimitiveType)
            )
        return is_castable(self.column.type, kind)


def _file_source(sample: FileSample) -> _Source:
    is_json = sample.format is SourceFormat.JSON_LINES
    texts: frozenset[str] = frozenset()
    if sample.format is SourceFormat.CSV:
        texts = frozenset(sample.columns.names)
    elif is_json and sample.rows is not None:
        texts = frozenset(f.name for f in sample.rows.schema if pa.types.is_string(f.type))
    return _Source(f"file {sample.path}", sample.columns, texts, is_json)


def _make_schema(sources: Sequence[_Source], request: TableRequest) -> Schema:
    columns = _unite(sources, request)
    _check_names(columns, request)
    _check_files_have_keys(sources, request)
    keys = (*request.row_keys, *request.sort_keys)
    values = (
        Field(name, kind, _is_nullable(name, sources))
        for name, kind in columns.items()
        if name not in keys
    )
    return Schema(
        tuple(Field(name, columns[name]) for name in request.row_keys),
        tuple(Field(name, columns[name]) for name in request.sort_keys),
        tuple(values),
    )


def _unite(sources: Sequence[_Source], request: TableRequest) -> dict[str, FieldType]:
    result: dict[str, list[_Column]] = {}
    for source in sources:
        names = source.columns.names
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise InvalidRequestError(
                f"{source.name}: duplicate columns: {', '.join(map(repr, duplicates))} "
                "(expected different names)"
            )
        for column in source.columns:
            kind = request.types.get(column.name)
            if kind is None:
                kind = _find_type(source, column, request.options)
            result.setdefault(column.name, []).append(_Column(source, column, kind))
    return {name: _common_type(name, columns) for name, columns in result.items()}


def _find_type(source: _Source, column: pa.Field, options: SourceOptions) -> FieldType | None:
    """Returns the column's type, None if it has no values."""
    kind = column.type
    if pa.types.is_null(kind) or (pa.types.is_list(kind) and pa.types.is_null(kind.value_type)):
        return None
    result = find_field_type(kind)
    if result is PrimitiveType.JSON and options.nested is not None and not is_json(kind):
        return PrimitiveType.STRING
    if result is not None:
        return result
    raise InvalidRequestError(
        f"{source.name}: column {column.name!r} is {kind} (expected numbers, text, bytes, times, "
        "dates, decimals, JSON, or lists, maps or structs of them)"
    )


def _common_type(name: str, columns: Sequence[_Column]) -> FieldType:
    typed = [each for each in columns if each.type is not None]
    if not typed:
        return find_field_type(columns[0].column.type) or PrimitiveType.STRING
    chosen = reduce(widen, (each.type for each in typed if each.type is not None))
    for each in typed:
        if not each.can_be(chosen):
            other = next(o for o in typed if o.type != each.type)
            raise InvalidRequestError(
                f"column {name!r} is {_describe(each)} and {_describe(other)} "
                "(expected types with a common one, or a choice by --type or, in Python, types)"
            )
    return chosen


def _describe(column: _Column) -> str:
    kind = "of an unknown type" if column.type is None else type_name(column.type)
    return f"{kind} in {column.source.name}"


def _check_names(columns: Mapping[str, FieldType], request: TableRequest) -> None:
    keys = (*request.row_keys, *request.sort_keys)
    shown = ", ".join(f"{name} {type_name(kind)}" for name, kind in columns.items())
    if not request.row_keys:
        raise InvalidRequestError(f"no row key is named (expected some of the columns {shown})")
    for name in (*keys, *request.types):
        if name not in columns:
            near = did_you_mean(name, columns)
            raise InvalidRequestError(f"no column {name!r} (expected one of {shown}){near}")
    duplicates = sorted({name for name in keys if keys.count(name) > 1})
    if duplicates:
        raise InvalidRequestError(
            f"duplicate keys: {', '.join(map(repr, duplicates))} (expected different columns)"
        )


def _check_files_have_keys(sources: Iterable[_Source], request: TableRequest) -> None:
    for source in sources:
        for name in (*request.row_keys, *request.sort_keys):
            if name not in source.columns.names:
                near = did_you_mean(name, source.columns.names)
                raise InvalidRequestError(
                    f"{source.name} has no column {name!r} (a key, expected in each file){near}"
                )


def _is_nullable(name: str, sources: Sequence[_Source]) -> bool:
    """Whether a value may be null. Of text, the rows after the sample may have nulls."""
    return any(
        source.texts
        or source.is_json
        or name not in source.columns.names
        or source.columns.field(name).nullable
        for source in sources
    )


def _check_keys(sample: FileSample, schema: Schema) -> None:
    for key in schema.keys:
        for row in _null_rows(sample, key.name):
            raise _null_key_error(f"file {sample.path}", row, key.name)


def _null_rows(sample: FileSample, name: str) -> Iterator[int]:
    if sample.rows is None:
        row = find_null(sample.path, name) if sample.columns.field(name).nullable else None
        if row is not None:
            yield row
    elif sample.rows.column(name).null_count:
        yield 1 + pc.index(sample.rows.column(name).is_null(), True).as_py()


def _null_key_error(where: str, row: int, name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{where}, row {row}: column {name!r} has no value (expected one in each row, because it "
        "is a key)"
    )


_DIGITS_MAX = 38
_DIGITS = {PrimitiveType.INT: 10, PrimitiveType.LONG: 19}
# A float holds no long exactly, and few integers.
_PAIRS = {
    frozenset({PrimitiveType.INT, PrimitiveType.LONG}): PrimitiveType.LONG,
    frozenset({PrimitiveType.INT, PrimitiveType.FLOAT}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.INT, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.LONG, PrimitiveType.FLOAT}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.LONG, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.FLOAT, PrimitiveType.DOUBLE}): PrimitiveType.DOUBLE,
    frozenset({PrimitiveType.DATE, PrimitiveType.TIMESTAMP}): PrimitiveType.TIMESTAMP,
}


@cache
def widen(left: FieldType, right: FieldType) -> FieldType:
    """Returns the type of both, StringType if they have no other one in common.

    JSON has all values of JSON lines, and of other files those that are JSON.
    """
    if left == right:
        return left
    if PrimitiveType.JSON in (left, right):
        return PrimitiveType.JSON
    match left, right:
        case ListType(one), ListType(other):
            element = widen(one, other)
            assert isinstance(element, PrimitiveType | DecimalType)
            return ListType(element)
        case MapType(key, one), MapType(other_key, other) if key == other_key:
            value = widen(one, other)
            assert isinstance(value, PrimitiveType | DecimalType)
            return MapType(key, value)
        case (DecimalType(), _) | (_, DecimalType()):
            return _widen_decimals(_as_decimal(left), _as_decimal(right))
    return _PAIRS.get(frozenset((left, right)), PrimitiveType.STRING)  # type: ignore[arg-type]


def _as_decimal(kind: FieldType) -> DecimalType | None:
    if isinstance(kind, DecimalType):
        return kind
    digits = _DIGITS.get(kind) if isinstance(kind, PrimitiveType) else None
    return None if digits is None else DecimalType(digits, 0)


def _widen_decimals(left: DecimalType | None, right: DecimalType | None) -> FieldType:
    if left is None or right is None:
        return PrimitiveType.STRING
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > _DIGITS_MAX:
        return PrimitiveType.STRING
    return DecimalType(whole + scale, scale)
