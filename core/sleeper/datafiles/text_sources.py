"""CSV and JSON lines, read in blocks of a few megabytes.

CSV has a header line with the columns' names; an empty value that is not quoted is null
where the field is nullable; bytes are base64; lists and maps are JSON. In JSON lines a
map is an object. Both may be compressed with gzip.
"""

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.csv as csv

from sleeper.datafiles.arrow import UnfitError, cast_or_find, cast_values
from sleeper.datafiles.json_rows import NOT_ROWS, TEXT_IN_JSON, parse_lines, reason_against
from sleeper.datafiles.s3_file import S3File
from sleeper.datafiles.sources import Columns, RowChecker, SourceFile, combined
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema

_BLOCK_BYTES = 8 * 1024 * 1024
_ANY_KEY = Field("\n", PrimitiveType.LONG)
# What Arrow says, the disk, and a compressed file that is cut off or torn.
_UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, zlib.error)


def read_csv(path: SourceFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, checked and parsed."""
    schema = checker.schema
    nested = [f for f in schema.fields if isinstance(f.type, ListType | MapType)]
    plain = frozenset(f.name for f in schema.fields) - {f.name for f in nested}
    short_rows: list[tuple[int, str, str]] = []
    with _opened(path) as stream:
        reader = _csv_reader(stream, path, schema, short_rows)
        checker.check_columns(reader.schema.names)
        for batch in _named_errors(reader, path):
            while short_rows:
                checker.reject_row(*short_rows.pop(0))
            columns = {n: combined(pa.chunked_array([batch.column(n)])) for n in batch.schema.names}
            if batch.num_rows:
                yield checker.parse(columns, plain, {f.name: _parse_json_column for f in nested})
    while short_rows:
        checker.reject_row(*short_rows.pop(0))


def read_json_lines(path: SourceFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """The rows of a JSON lines file, checked and parsed."""
    text_fields = frozenset(f.name for f in checker.schema.fields if f.type in TEXT_IN_JSON)
    with _opened(path) as stream:
        for lines in _blocks_of_lines(stream, path):
            for first, columns in _parsed_by_halves(lines, checker, 0):
                start, checker.row = checker.row, checker.row + first
                yield checker.parse(columns, text_fields)
                checker.row = start
            checker.row += len(lines)


def _csv_reader(
    stream: IO[bytes], path: SourceFile, schema: Schema, short_rows: list[tuple[int, str, str]]
) -> csv.CSVStreamingReader:
    def on_invalid_row(row: csv.InvalidRow) -> str:
        reason = f"expected {row.expected_columns} columns, found {row.actual_columns}"
        short_rows.append((row.number - 1 if row.number else 0, reason, row.text))
        return "skip"

    try:
        return csv.open_csv(
            _Utf8(stream),
            read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=on_invalid_row
            ),
            convert_options=csv.ConvertOptions(
                column_types={f.name: pa.string() for f in schema.fields},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except _UNREADABLE as error:
        raise InvalidRequestError(f"file {path}: not a readable CSV file: {error}") from error


class _Utf8(io.RawIOBase):
    """Bytes that are text. Arrow would find out only in some of the columns."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        try:
            self._decoder.decode(found, final=not found)
        except UnicodeDecodeError as error:
            raise OSError(f"not UTF-8 text: {error}") from error
        return found


def _named_errors(reader: csv.CSVStreamingReader, path: SourceFile) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except _UNREADABLE as error:
            raise InvalidRequestError(f"file {path}: not a readable CSV file: {error}") from error
        yield batch


def _parse_json_column(column: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """Cells that hold JSON as the field's type, and the rows that do not fit with their reasons."""
    return cast_or_find(
        column, field, lambda part: cast_values(_json_cells(part, field), field.type)
    )


def _json_cells(column: pa.Array, field: Field) -> pa.Array:
    """The cells parsed as JSON lines of one field."""
    name = json.dumps(field.name).encode()
    lines = [b"{%b:%b}" % (name, (cell.as_py() or "null").encode()) for cell in column]
    try:
        return parse_lines(lines, Schema((_ANY_KEY,), (), (field,)), only=field.name)[field.name]
    except NOT_ROWS as error:
        raise UnfitError(f"not JSON of the field: {error}") from error


def _opened(path: SourceFile) -> IO[bytes]:
    is_compressed = path.name.lower().endswith(".gz")
    if isinstance(path, S3File):
        content = path.open_stream()
        return gzip.open(content) if is_compressed else content  # type: ignore[return-value]
    return gzip.open(path) if is_compressed else path.open("rb")  # type: ignore[return-value]


def _blocks_of_lines(stream: IO[bytes], path: SourceFile) -> Iterator[list[bytes]]:
    while True:
        try:
            lines = stream.readlines(_BLOCK_BYTES)
        except _UNREADABLE as error:
            raise InvalidRequestError(f"file {path}: cannot be read: {error}") from error
        if not lines:
            return
        yield lines


def _parsed_by_halves(
    lines: list[bytes], checker: RowChecker, first: int
) -> Iterator[tuple[int, Columns]]:
    """Columns of runs of lines that parse, each with its first line's place in the block."""
    try:
        columns = parse_lines(lines, checker.schema)
    except NOT_ROWS as error:
        if len(lines) == 1:
            reason = reason_against(lines[0], checker.schema, error)
            text = lines[0].decode(errors="replace").rstrip("\n")
            checker.reject_row(checker.row + first, reason, text)
            return
        half = len(lines) // 2
        yield from _parsed_by_halves(lines[:half], checker, first)
        yield from _parsed_by_halves(lines[half:], checker, first + half)
        return
    if columns:
        yield first, columns
