"""Parquet files that users bring.

Most files can be scanned by DataFusion as they are: their columns are of the table's
types (or of narrower or wider integers, or of another layout of the same text), and
their footers say that no value is null that must not be. The others are read here,
checked and cast batch by batch.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.s3_file import S3File
from sleeper.datafiles.sources import RowChecker, SourceFile, batch_columns
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import INT_RANGES, Field, ListType, MapType, PrimitiveType, Schema

# Of a batch, whose rows may be wide.
_BATCH_ROWS_MAX = 65_536
_BATCH_BYTES = 16 * 1024**2


def open_parquet(path: SourceFile, checker: RowChecker) -> pq.ParquetFile | None:
    """The file, its columns and types checked; None for an upload of no rows and no columns."""
    try:
        file = pq.ParquetFile(path.open_ranges() if isinstance(path, S3File) else path)
        found = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(f"file {path}: not a readable Parquet file: {error}") from error
    if not found.names and file.metadata.num_rows == 0:
        return None
    checker.check_columns(found.names)
    checker.check_types(found)
    return file


def is_scannable(file: pq.ParquetFile, schema: Schema) -> bool:
    """Whether DataFusion can read the file as it is, with no more than a safe cast."""
    found = file.schema_arrow
    same = all(_same_or_safe(found.field(f.name).type, f.type) for f in arrow_schema(schema))
    return same and all(
        _footer_says_fit(file.metadata.row_group(group), schema)
        for group in range(file.metadata.num_row_groups)
    )


def read_parquet(
    path: SourceFile, checker: RowChecker, row_groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file or of some of its row groups, checked and cast.

    Messages name the row group, and count rows from the beginning of the file.
    """
    file = open_parquet(path, checker)
    if file is None:
        return
    names = [f.name for f in checker.schema.fields]
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    for group in range(len(sizes)) if row_groups is None else row_groups:
        checker.row = 1 + sum(sizes[:group])
        checker.where = f", row group {group}"
        rows = _batch_rows(file.metadata.row_group(group))
        batches = file.iter_batches(rows, row_groups=[group], columns=names)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise InvalidRequestError(
                    f"file {path}, row group {group}: cannot be read: {error}"
                ) from error
            if batch is None:
                break
            if batch.num_rows:
                yield checker.cast(batch_columns(batch))


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    rows: int = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    return min(max(rows, 1), _BATCH_ROWS_MAX)


def _same_or_safe(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(found))
    if pa.types.is_string(wanted):
        return found in (pa.string(), pa.large_string(), pa.string_view())
    if pa.types.is_binary(wanted):
        return found in (pa.binary(), pa.large_binary(), pa.binary_view())
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found)) and found.value_type.equals(wanted.value_type)
    if pa.types.is_map(wanted):
        return (
            bool(pa.types.is_map(found))
            and found.key_type.equals(wanted.key_type)
            and found.item_type.equals(wanted.item_type)
        )
    return bool(found.equals(wanted))


def _footer_says_fit(row_group: pq.RowGroupMetaData, schema: Schema) -> bool:
    """Whether its statistics promise that every value fits; without statistics, they do not."""
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    return all(_column_fits(c, _field_of(c.path_in_schema, schema)) for c in columns)


def _field_of(path: str, schema: Schema) -> Field:
    """The field of a column; what is inside it stands behind a dot, which a name may have too."""
    found = [f for f in schema.fields if f"{path}.".startswith(f"{f.name}.")]
    return max(found, key=lambda f: len(f.name))


def _column_fits(column: pq.ColumnChunkMetaData, field: Field) -> bool:
    statistics = column.statistics
    may_not_be_null = not field.nullable or isinstance(field.type, ListType | MapType)
    is_narrowed = field.type is PrimitiveType.INT and column.physical_type == "INT64"
    if statistics is None:
        return not may_not_be_null and not is_narrowed
    if may_not_be_null and (not statistics.has_null_count or statistics.null_count):
        return False
    low, high = INT_RANGES[PrimitiveType.INT]
    return not is_narrowed or (
        statistics.has_min_max and low <= statistics.min and statistics.max <= high
    )
