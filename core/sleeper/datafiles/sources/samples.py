"""The columns of users' files and their types, from footers or the first rows.

Parquet files name their types. The types of CSV are the first that all values of the sample fit:
LongType, DoubleType, BooleanType, DateType, TimestampType, StringType. JSON lines have the types of
their values; text may also be found to be dates or times.
"""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as pj
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_type, as_json
from sleeper.datafiles.sources.dialect import Dialect
from sleeper.datafiles.sources.encodings import UTF8, Utf8Stream
from sleeper.datafiles.sources.files import SourceFormat, combined, source_format
from sleeper.datafiles.sources.json_hazards import check_depth, check_objects
from sleeper.datafiles.sources.parquet import UNREADABLE
from sleeper.datafiles.sources.raw_members import separate_raw_members
from sleeper.datafiles.sources.text import open_csv, open_json_lines
from sleeper.datafiles.text_values import parse_values
from sleeper.datafiles.validity import UnfitError
from sleeper.errors import InvalidRequestError, classify_error
from sleeper.schema.model import Field, PrimitiveType
from sleeper.storage.bucket_folder import S3File, SourceFile
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

_TIMES = (PrimitiveType.DATE, PrimitiveType.TIMESTAMP)
_TYPES_OF_TEXT = (PrimitiveType.LONG, PrimitiveType.DOUBLE, PrimitiveType.BOOLEAN, *_TIMES)
# Numbers such as 007 are codes, whose zeros count.
_CODE = r"^[+-]?0\d"
# An integer that no long has would lose digits as a double.
_MANY_DIGITS = r"^[+-]?\d{19}"


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_TEXTS = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class FileSample:
    """The columns of a file with their types, which are null for columns without values.

    `rows` are the sampled rows, of which CSV has texts; None for Parquet, of which only the footer
    is read. `row_count` is their number, or that of the whole file if `is_whole`. `irregular_rows`
    have another number of values than columns. `dialect` and `encoding` are those of text.
    """

    path: SourceFile
    format: SourceFormat
    columns: pa.Schema
    row_count: int
    is_whole: bool
    rows: pa.Table | None = None
    irregular_rows: int = 0
    dialect: Dialect | None = None
    encoding: str | None = None


def sample_file(
    file: SourceFile,
    bytes_max: int,
    options: SourceOptions = DEFAULT_OPTIONS,
    finds_times: bool = False,
) -> FileSample:
    """Returns the sample of a file. InvalidRequestError if it is not readable.

    Of text it reads `bytes_max` bytes. `finds_times` in the text of JSON lines.
    """
    kind = source_format(file, options)
    try:
        match kind:
            case SourceFormat.PARQUET:
                return _sample_parquet(file)
            case SourceFormat.CSV:
                return _sample_csv(file, bytes_max, options)
            case SourceFormat.JSON_LINES:
                return _sample_json(file, bytes_max, options, finds_times)
    except UNREADABLE as error:
        text = f"file {file}: not a readable {kind.name.replace('_', ' ').lower()} file: {error}"
        raise classify_error(error, text, InvalidRequestError) from error


def _sample_parquet(file: SourceFile) -> FileSample:
    with pq.ParquetFile(file.open_ranges() if isinstance(file, S3File) else file) as content:
        rows = content.metadata.num_rows
        return FileSample(file, SourceFormat.PARQUET, content.schema_arrow, rows, True)


def _sample_csv(file: SourceFile, bytes_max: int, options: SourceOptions) -> FileSample:
    with open_csv(file, options) as (stream, dialect):
        sample, is_whole = _read_lines(stream, bytes_max)
        encoding = stream.encoding or UTF8
    if not dialect.names:
        return FileSample(file, SourceFormat.CSV, pa.schema([]), 0, True)
    table, irregular_rows = pa.table(dict.fromkeys(dialect.names, _NO_TEXTS)), 0
    if dialect.has_rows:
        table, irregular_rows = _read_csv(sample, dialect)
    columns = pa.schema(
        [(name, _type_of_text(table.column(index))) for index, name in enumerate(dialect.names)]
    )
    return FileSample(
        file,
        SourceFormat.CSV,
        columns,
        table.num_rows,
        is_whole,
        table,
        irregular_rows,
        dialect,
        encoding,
    )


def _read_csv(sample: bytes, dialect: Dialect) -> tuple[pa.Table, int]:
    """Returns all columns as text, and the number of rows of another length."""
    irregular: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> str:
        irregular.append(row)
        return "skip"

    table = csv.read_csv(
        io.BytesIO(sample),
        read_options=csv.ReadOptions(
            block_size=len(sample) + 1,
            use_threads=False,
            column_names=dialect.names,
            # Of the rows after the names, blank ones count.
            skip_rows=dialect.blank_lines,
            skip_rows_after_names=int(dialect.has_header),
        ),
        parse_options=csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=skip
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(dialect.names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return table, len(irregular)


def _type_of_text(
    column: pa.ChunkedArray, kinds: Sequence[PrimitiveType] = _TYPES_OF_TEXT
) -> pa.DataType:
    values = column.drop_null().combine_chunks()
    if not len(values):
        return pa.null()
    if _any_matches(values, _CODE):
        return pa.string()
    for kind in kinds:
        if kind is PrimitiveType.DOUBLE and _any_matches(values, _MANY_DIGITS):
            break
        with contextlib.suppress(pa.ArrowException, UnfitError):
            parse_values(values, kind)
            return arrow_type(kind)
    return pa.string()


def _any_matches(values: pa.Array, form: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, form)).as_py())


def _sample_json(
    file: SourceFile, bytes_max: int, options: SourceOptions, finds_times: bool
) -> FileSample:
    with open_json_lines(file, options) as stream:
        sample, is_whole = _read_lines(stream, bytes_max)
        encoding = stream.encoding or UTF8
    if not sample.strip():
        return FileSample(file, SourceFormat.JSON_LINES, pa.schema([]), 0, True)
    check_objects(line for line in sample.split(b"\n") if line.strip())
    check_depth(sample)
    try:
        table = _read_text_as_text(sample)
    except pa.ArrowInvalid:
        table = _read_with_json(sample)
    columns = table.schema
    for index, column in enumerate(table.schema):
        if finds_times and pa.types.is_string(column.type):
            kind = _type_of_text(table.column(index), _TIMES)
            columns = columns.set(index, column.with_type(kind))
    return FileSample(
        file,
        SourceFormat.JSON_LINES,
        columns,
        table.num_rows,
        is_whole,
        table,
        encoding=encoding,
    )


def _read_text_as_text(sample: bytes) -> pa.Table:
    # Arrow takes text for a time if all of it is one.
    result = _read_json(sample, None).schema
    texts = [f.name for f in result if pa.types.is_timestamp(f.type)]
    return _read_json(sample, pa.schema([(name, pa.string()) for name in texts]))


def _read_with_json(sample: bytes) -> pa.Table:
    """Reads lines with nested values that have several types. They are JSON."""
    lines = [_MEMBERS.decode(line) for line in sample.splitlines() if line.strip()]
    names = dict.fromkeys(
        name for line in lines for name, value in line.items() if bytes(value)[:1] in (b"{", b"[")
    )
    fields = [Field(name, PrimitiveType.JSON, nullable=True) for name in names]
    rest, raw = separate_raw_members(sample, fields)
    table = _read_text_as_text(rest)
    columns = raw.put_into({name: combined(table.column(name)) for name in table.column_names})
    typed = {name: as_json(each) if name in names else each for name, each in columns.items()}
    return pa.table(typed)


def _read_json(sample: bytes, schema: pa.Schema | None) -> pa.Table:
    return pj.read_json(
        io.BytesIO(sample),
        read_options=pj.ReadOptions(block_size=len(sample) + 1, use_threads=False),
        parse_options=pj.ParseOptions(explicit_schema=schema),
    )


def _read_lines(stream: Utf8Stream, bytes_max: int) -> tuple[bytes, bool]:
    """Returns the first whole lines of a file, and whether they are all of it."""
    sample = stream.read(bytes_max)
    if len(sample) < bytes_max:
        return sample, True
    end = sample.rfind(b"\n")
    # A quoted value of CSV may have line ends. Quotes within JSON are escaped or in pairs.
    while end > 0 and sample.count(b'"', 0, end) % 2:
        end = sample.rfind(b"\n", 0, end)
    return sample[: end + 1] or sample, False
