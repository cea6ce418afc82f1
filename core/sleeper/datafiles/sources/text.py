"""Users' CSV and JSON lines files, read in blocks of a few megabytes.

CSV has a header line with column names. An unquoted empty value is null, bytes are base64, lists
and maps are JSON. In JSON lines a map is an object. Both may be compressed with gzip.
"""

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.csv as csv

from sleeper.datafiles.casts import UnfitError, cast_or_find, cast_values
from sleeper.datafiles.sources.files import Columns, RowChecker, combined
from sleeper.datafiles.sources.json_rows import NOT_ROWS, TEXT_IN_JSON, parse_lines, reason_against
from sleeper.errors import InvalidRequestError, classify_error, describe_error
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage.bucket_folder import S3File, SourceFile

_BLOCK_BYTES = 8 * 1024 * 1024
_ANY_KEY = Field("\n", PrimitiveType.LONG)
# Values with their terminators. A quote inside an unquoted value is text.
_WHOLE_VALUES = re.compile(rb'(?:[^",\r\n][^,\r\n]*+[,\r\n]|"(?:[^"]++|"")*+"[,\r\n]|[,\r\n])*+')
_QUOTED_VALUE = re.compile(rb'"(?:[^"]++|"")*+"')
_BYTE_ORDER_MARK = codecs.BOM_UTF8
# Errors of Arrow, of the disk, and of a torn compressed file.
_UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, zlib.error)


def read_csv(path: SourceFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a CSV file, checked and parsed."""
    schema = checker.schema
    nested = [f for f in schema.fields if isinstance(f.type, ListType | MapType)]
    plain = frozenset(f.name for f in schema.fields) - {f.name for f in nested}
    short_rows: list[tuple[int, str, str]] = []
    with open_text(path) as stream:
        texts = [f.name for f in schema.fields]
        if checker.ignores_extra_columns:
            # Arrow would guess the types of other columns, and fail on later values.
            with open_text(path) as head:
                texts += _csv_reader(head, path, checker, [], texts).schema.names
        reader = _csv_reader(stream, path, checker, short_rows, texts)
        checker.check_columns(reader.schema.names, ignores_extra=checker.ignores_extra_columns)
        for batch in _named_errors(reader, path):
            while short_rows:
                checker.reject_row(*short_rows.pop(0))
            columns = {n: combined(pa.chunked_array([batch.column(n)])) for n in batch.schema.names}
            if batch.num_rows:
                yield checker.parse(columns, plain, {f.name: _parse_json_column for f in nested})
    while short_rows:
        checker.reject_row(*short_rows.pop(0))


def read_json_lines(path: SourceFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a JSON lines file, checked and parsed."""
    text_fields = frozenset(f.name for f in checker.schema.fields if f.type in TEXT_IN_JSON)
    with open_text(path) as stream:
        for lines in _blocks_of_lines(stream, path, checker.line_bytes_max):
            for first, columns in _parse_by_halves(lines, checker, 0):
                start, checker.row = checker.row, checker.row + first
                yield checker.parse(columns, text_fields)
                checker.row = start
            checker.row += len(lines)


def _csv_reader(
    stream: IO[bytes],
    path: SourceFile,
    checker: RowChecker,
    short_rows: list[tuple[int, str, str]],
    text_columns: Sequence[str],
) -> csv.CSVStreamingReader:
    def on_invalid_row(row: csv.InvalidRow) -> str:
        reason = f"expected {row.expected_columns} columns, found {row.actual_columns}"
        short_rows.append((row.number - 1 if row.number else 0, reason, row.text))
        return "skip"

    try:
        return csv.open_csv(
            _CheckedCsv(stream, path, checker.line_bytes_max),
            # A row must fit into a block.
            read_options=csv.ReadOptions(
                block_size=max(_BLOCK_BYTES, checker.line_bytes_max), use_threads=False
            ),
            parse_options=csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=on_invalid_row
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(text_columns, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except _UNREADABLE as error:
        raise classify_error(
            error, f"file {path}: not a readable CSV file: {error}", InvalidRequestError
        ) from error


class _CheckedCsv(io.RawIOBase):
    """The bytes of a CSV file, checked for faults that Arrow accepts.

    InvalidRequestError for bytes that are not UTF-8, which Arrow detects only in some columns,
    for a quoted value without an end, which Arrow extends to the end of the file, and for a value
    that is too long.
    """

    def __init__(self, stream: IO[bytes], path: SourceFile, value_bytes_max: int) -> None:
        self._stream = stream
        self._path = path
        self._value_bytes_max = value_bytes_max
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        self._is_start = True
        self._unfinished = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = _BLOCK_BYTES) -> bytes:
        block = self._stream.read(max(size - 1, 1))
        if block.endswith(b"\r"):
            # Arrow interprets a line feed at the start of a block as the second half of a line
            # end, also within quotes.
            block += self._stream.read(1)
        try:
            self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"file {self._path}: not UTF-8 text: {error}") from error
        self._check_values(block)
        return block

    def _check_values(self, block: bytes) -> None:
        content = self._unfinished + block
        if self._is_start:
            content, self._is_start = content.removeprefix(_BYTE_ORDER_MARK), False
        if b'"' in content:
            end = _WHOLE_VALUES.match(content).end()  # type: ignore[union-attr]
        else:
            end = max(content.rfind(each) for each in (b",", b"\n", b"\r")) + 1
        self._line += content.count(b"\n", 0, end)
        self._unfinished = content[end:]
        self._check_unfinished(is_last=not block)

    def _check_unfinished(self, is_last: bool) -> None:
        value = self._unfinished
        if len(value) > self._value_bytes_max:
            raise self._error(
                f"a value of more than {self._value_bytes_max} bytes "
                "(see sleeper.ingest.line.bytes.max)"
            )
        if not value.startswith(b'"'):
            return
        quoted = _QUOTED_VALUE.match(value)
        if quoted is not None and quoted.end() < len(value):
            raise self._error("a quoted value with text after its last quote")
        if quoted is None and is_last:
            raise self._error("a quoted value without an end: its last quote is missing")

    def _error(self, reason: str) -> InvalidRequestError:
        return InvalidRequestError(f"file {self._path}, line {self._line}: {reason}")


def _named_errors(reader: csv.CSVStreamingReader, path: SourceFile) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except _UNREADABLE as error:
            raise classify_error(
                error, f"file {path}: not a readable CSV file: {error}", InvalidRequestError
            ) from error
        yield batch


def _parse_json_column(column: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """Parses cells of JSON as the field's type. Returns the reasons of rows that do not fit."""
    return cast_or_find(
        column, field, lambda part: cast_values(_json_cells(part, field), field.type)
    )


def _json_cells(column: pa.Array, field: Field) -> pa.Array:
    """Parses the cells as JSON lines of one field."""
    name = json.dumps(field.name).encode()
    lines = [b"{%b:%b}" % (name, (cell.as_py() or "null").encode()) for cell in column]
    try:
        return parse_lines(lines, Schema((_ANY_KEY,), (), (field,)), only=field.name)[field.name]
    except NOT_ROWS as error:
        raise UnfitError(f"not JSON of the field: {error}") from error


def open_text(path: SourceFile) -> IO[bytes]:
    """Opens a file for a sequential read, uncompressed."""
    is_compressed = path.name.lower().endswith(".gz")
    if isinstance(path, S3File):
        content = path.open_stream()
        return gzip.open(content) if is_compressed else content  # type: ignore[return-value]
    try:
        return gzip.open(path) if is_compressed else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        text = f"file {path}: cannot be read: {describe_error(error)}"
        raise classify_error(error, text, InvalidRequestError) from error


def _blocks_of_lines(
    stream: IO[bytes], path: SourceFile, line_bytes_max: int
) -> Iterator[list[bytes]]:
    """Yields the lines in blocks of some megabytes. InvalidRequestError if one is too long."""
    line, unfinished = 1, b""
    while True:
        try:
            block = stream.read(_BLOCK_BYTES)
        except _UNREADABLE as error:
            raise classify_error(
                error, f"file {path}: cannot be read: {error}", InvalidRequestError
            ) from error
        *lines, unfinished = (unfinished + block).split(b"\n")
        if max(map(len, lines), default=0) > line_bytes_max or len(unfinished) > line_bytes_max:
            long = next(
                n for n, each in enumerate([*lines, unfinished]) if len(each) > line_bytes_max
            )
            raise InvalidRequestError(
                f"file {path}, line {line + long}: longer than {line_bytes_max} bytes "
                "(see sleeper.ingest.line.bytes.max)"
            )
        if not block:
            if unfinished:
                yield [unfinished]
            return
        if lines:
            yield lines
        line += len(lines)


def _parse_by_halves(
    lines: list[bytes], checker: RowChecker, first: int
) -> Iterator[tuple[int, Columns]]:
    """Yields the columns of runs of valid lines after the place of the run's first line."""
    try:
        columns = parse_lines(lines, checker.schema, ignores_extra=checker.ignores_extra_columns)
    except NOT_ROWS as error:
        if len(lines) == 1:
            reason = reason_against(lines[0], checker.schema, error)
            text = lines[0].decode(errors="replace").rstrip("\n")
            checker.reject_row(checker.row + first, reason, text)
            return
        half = len(lines) // 2
        yield from _parse_by_halves(lines[:half], checker, first)
        yield from _parse_by_halves(lines[half:], checker, first + half)
        return
    if columns:
        yield first, columns
