"""Users' Parquet files.

DataFusion can scan most files unchanged: their columns have the table's types, narrower or wider
integers, or another layout of the same text, and their footers exclude nulls in fields that are
not nullable. The others are read here, checked and cast batch by batch.
"""

import io
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.parquet_footer import (
    INT32,
    INT64,
    TAIL_BYTES,
    ColumnStatistics,
    column_statistics,
    footer_length,
)
from sleeper.datafiles.sources.budget import slice_rows_max
from sleeper.datafiles.sources.files import RowChecker, batch_columns
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError, classify_error
from sleeper.schema.model import (
    INT_RANGES,
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from sleeper.storage.bucket_folder import S3File, SourceFile

UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError)
"""Arrow's errors for a damaged file. Names that are not UTF-8 raise ValueError."""

logger = logging.getLogger(__name__)

# Batches are limited by rows and by bytes, because rows may be wide.
_BATCH_ROWS_MAX = 65_536
_BATCH_BYTES = 16 * 1024**2


def open_parquet(path: SourceFile, checker: RowChecker) -> pq.ParquetFile | None:
    """Opens a file and checks its columns and types. None if it has no rows and no columns."""
    try:
        file = pq.ParquetFile(path.open_ranges() if isinstance(path, S3File) else path)
        schema = file.schema_arrow
        names = schema.names
    except UNREADABLE as error:
        raise classify_error(
            error, f"file {path}: not a readable Parquet file: {error}", InvalidRequestError
        ) from error
    if not names and file.metadata.num_rows == 0:
        return None
    _check_row_counts(path, file.metadata)
    checker.check_columns(names, ignores_extra=not checker.refuses_extra_columns)
    checker.check_types(schema)
    return file


def _check_row_counts(path: SourceFile, metadata: pq.FileMetaData) -> None:
    """Refuses a footer whose total contradicts its row groups, which readers treat differently."""
    counted = sum(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    if counted != metadata.num_rows:
        raise InvalidRequestError(
            f"file {path}: damaged footer: {metadata.num_rows} rows in all, but {counted} in its "
            "row groups"
        )


def warn_of_extra_columns(path: SourceFile, file: pq.ParquetFile, schema: Schema) -> None:
    """Logs the ignored columns of a checked file."""
    extra = _extra_columns(file, schema)
    if extra:
        named = ", ".join(map(repr, extra))
        logger.warning("file %s: ignored columns that are not in the schema: %s", path, named)


def _extra_columns(file: pq.ParquetFile, schema: Schema) -> list[str]:
    names = {field.name for field in schema.fields}
    return [name for name in file.schema_arrow.names if name not in names]


def is_scannable(path: SourceFile, file: pq.ParquetFile, schema: Schema) -> bool:
    """Whether DataFusion can scan the file unchanged, with safe casts only.

    It does not compare the keys of maps with each other, nor check JSON.
    """
    if any(isinstance(f.type, MapType) or f.type is PrimitiveType.JSON for f in schema.fields):
        return False
    actual = file.schema_arrow
    if _extra_columns(file, schema) or len(actual.names) < len(schema.fields):
        return False
    same = all(_same_or_safe(actual.field(f.name).type, f.type) for f in arrow_schema(schema))
    if not same:
        return False
    fields = {field.name: field for field in schema.fields}
    try:
        return all(
            column.path[0] in fields and _column_fits(column, fields[column.path[0]])
            for column in column_statistics(_footer(path, file))
        )
    except (ValueError, IndexError):
        return False


def count_rows(file: pq.ParquetFile) -> tuple[int, int]:
    """Returns the numbers of rows and of their bytes, uncompressed and encoded."""
    groups = range(file.metadata.num_row_groups)
    return file.metadata.num_rows, sum(file.metadata.row_group(g).total_byte_size for g in groups)


def find_null(path: SourceFile, column: str) -> int | None:
    """Returns the number of the first row without a value, from 1; None if there is none.

    It reads the column only if the statistics count nulls.
    """
    try:
        with pq.ParquetFile(path.open_ranges() if isinstance(path, S3File) else path) as file:
            statistics = column_statistics(_footer(path, file))
            if not any(each.null_count for each in statistics if each.path == (column,)):
                return None
            row = 1
            for batch in file.iter_batches(_BATCH_ROWS_MAX, columns=[column]):
                if batch.column(0).null_count:
                    return row + int(pc.index(batch.column(0).is_null(), True).as_py())
                row += batch.num_rows
    except (*UNREADABLE, IndexError) as error:
        raise _unreadable(path, error) from error
    return None


def read_head(path: SourceFile, rows: int) -> pa.Table:
    """Returns the first rows of a file as they are. InvalidRequestError if it is damaged."""
    try:
        with pq.ParquetFile(path.open_ranges() if isinstance(path, S3File) else path) as file:
            first = next(file.iter_batches(rows), None)
            batches = [] if first is None else [first]
            return pa.Table.from_batches(batches, file.schema_arrow).slice(0, rows)
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: SourceFile, error: Exception) -> SleeperError:
    return classify_error(error, f"file {path}: cannot be read: {error}", InvalidRequestError)


def _footer(path: SourceFile, file: pq.ParquetFile) -> bytes:
    """Returns the bytes of the footer. Arrow's own statistics may abort (`parquet_footer`)."""
    try:
        with path.open_ranges() if isinstance(path, S3File) else path.open("rb") as content:
            content.seek(-file.metadata.serialized_size - TAIL_BYTES, io.SEEK_END)
            tail = content.read()
    except OSError as error:
        raise UnavailableError(f"file {path}: cannot be read: {error}") from error
    return tail[-TAIL_BYTES - footer_length(tail) : -TAIL_BYTES]


def read_parquet(
    path: SourceFile, checker: RowChecker, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a Parquet file or of some row groups, checked and cast.

    Messages name the row group and the row in the file.
    """
    file = open_parquet(path, checker)
    if file is None:
        return
    names = [f.name for f in checker.schema.fields]
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    for group in range(len(sizes)) if row_groups is None else row_groups:
        checker.row = 1 + sum(sizes[:group])
        checker.where = f", row group {group}"
        rows = min(_batch_rows(file.metadata.row_group(group)), slice_rows_max(checker.schema))
        batches = file.iter_batches(rows, row_groups=[group], columns=names)
        while True:
            try:
                batch = next(batches, None)
                # The cast detects a damaged type, such as a time zone that is not UTF-8.
                is_read = batch is not None and batch.num_rows
                checked = checker.cast(batch_columns(batch)) if is_read else None
            except UNREADABLE as error:
                raise classify_error(
                    error,
                    f"file {path}, row group {group}: cannot be read: {error}",
                    InvalidRequestError,
                ) from error
            if batch is None:
                break
            if checked is not None:
                yield checked


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    rows: int = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    return min(max(rows, 1), _BATCH_ROWS_MAX)


def _same_or_safe(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_integer(expected):
        return bool(pa.types.is_signed_integer(actual))
    if pa.types.is_string(expected):
        return actual in (pa.string(), pa.large_string(), pa.string_view())
    if pa.types.is_binary(expected):
        return actual in (pa.binary(), pa.large_binary(), pa.binary_view())
    if pa.types.is_list(expected):
        return bool(pa.types.is_list(actual)) and actual.value_type.equals(expected.value_type)
    return bool(actual.equals(expected))


def _column_fits(column: ColumnStatistics, field: Field) -> bool:
    """Whether the statistics ensure that every value fits. Missing statistics do not."""
    may_not_be_null = not field.nullable or isinstance(field.type, ListType)
    if may_not_be_null and column.null_count != 0:
        return False
    bounds = _narrower_bounds(column, _type_inside(field.type))
    if bounds is None:
        return True
    low, high = _number(column.low, column), _number(column.high, column)
    return low is not None and high is not None and bounds[0] <= low and high <= bounds[1]


def _narrower_bounds(column: ColumnStatistics, kind: FieldType) -> tuple[int, int] | None:
    """Returns the bounds of the type if the column's type is wider. Decimals are unscaled."""
    if isinstance(kind, DecimalType):
        largest = 10**kind.precision - 1
        return -largest, largest
    if kind is PrimitiveType.INT and column.physical_type == INT64:
        return INT_RANGES[kind]
    return None


def _type_inside(kind: FieldType) -> FieldType:
    return kind.element if isinstance(kind, ListType) else kind


def _number(bound: bytes | None, column: ColumnStatistics) -> int | None:
    if bound is None:
        return None
    is_integer = column.physical_type in (INT32, INT64)
    return int.from_bytes(bound, "little" if is_integer else "big", signed=True)
