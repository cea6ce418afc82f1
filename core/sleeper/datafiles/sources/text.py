"""Users' CSV and JSON lines files, read in blocks of a few megabytes.

CSV may have any delimiter, with or without a header (`dialect`), and both any encoding
(`encodings`). In CSV an unquoted empty value is null, bytes are base64, lists and maps are JSON. In
JSON lines a map is an object. Both may be compressed with gzip or Zstandard.
"""

import codecs
import contextlib
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
from isal import igzip, isal_zlib

from sleeper.datafiles.casts import cast_or_find, cast_values
from sleeper.datafiles.sources.budget import slice_rows_max
from sleeper.datafiles.sources.dialect import SAMPLE_BYTES, Dialect, find_dialect
from sleeper.datafiles.sources.encodings import MemoryFile, TextFile, Utf8Stream
from sleeper.datafiles.sources.files import (
    GZIP_SUFFIX,
    ZSTD_SUFFIX,
    Columns,
    RowChecker,
    batch_columns,
)
from sleeper.datafiles.sources.invalid_lines import SeparatedLines, separate_lines
from sleeper.datafiles.sources.json_form import count_lines
from sleeper.datafiles.sources.json_rows import NOT_ROWS, BlockParser, parse_lines
from sleeper.datafiles.sources.nested import find_text_fields, quote_nested
from sleeper.datafiles.sources.read_ahead import map_ahead, read_ahead
from sleeper.datafiles.text_values import TEXT_IN_JSON
from sleeper.datafiles.validity import UnfitError
from sleeper.errors import InvalidRequestError, classify_error, describe_error
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage.bucket_folder import S3File
from sleeper.storage.source_options import SourceOptions

_BLOCK_BYTES = 8 * 1024 * 1024
# Blocks of lines stay in the processor's cache, and several are in memory.
_LINES_BYTES = 2 * 1024 * 1024
_LINE_FEED = ord("\n")
_ANY_KEY = Field("\n", PrimitiveType.LONG)
_QUOTED_VALUE = re.compile(rb'"(?:[^"]++|"")*+"')
# Errors of Arrow, of the disk, and of a torn compressed file.
_UNREADABLE: tuple[type[Exception], ...] = (
    pa.ArrowInvalid,
    OSError,
    EOFError,
    isal_zlib.error,  # type: ignore[assignment] # a class, typed as an object
)


def read_csv(path: TextFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a CSV file, checked and parsed."""
    schema = checker.schema
    nested = [f for f in schema.fields if isinstance(f.type, ListType | MapType)]
    plain = frozenset(f.name for f in schema.fields) - {f.name for f in nested}
    parsers = {f.name: _parse_json_column for f in nested}
    short_rows: list[tuple[int, str, str]] = []
    rows_max = slice_rows_max(schema)
    texts = [f.name for f in schema.fields]
    with (
        open_csv(path, checker.options, texts) as (stream, dialect),
        contextlib.ExitStack() as stack,
    ):
        if not dialect.has_rows:  # which Arrow refuses in some cases
            if dialect.names:
                checker.check_columns(dialect.names, ignores_extra=checker.ignores_extra_columns)
            return
        # Arrow would guess the types of other columns, and fail on later values.
        texts += dialect.names
        reader = _csv_reader(stream, path, checker, short_rows, texts, dialect)
        checker.check_columns(reader.schema.names, ignores_extra=checker.ignores_extra_columns)
        batches = read_ahead(_named_errors(reader, path, short_rows), checker.threads)
        stack.enter_context(contextlib.closing(batches))
        for batch, rejected in batches:
            for each in rejected:
                checker.reject_row(*each)
            for start in range(0, batch.num_rows, rows_max):
                yield checker.parse(batch_columns(batch.slice(start, rows_max)), plain, parsers)
    for each in short_rows:
        checker.reject_row(*each)


def read_json_lines(path: TextFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a JSON lines file, checked and parsed."""
    text_fields = frozenset(f.name for f in checker.schema.fields if f.type in TEXT_IN_JSON)
    schema, ignores_extra = checker.schema, checker.ignores_extra_columns
    parser = BlockParser(schema, ignores_extra)
    quoted = frozenset() if checker.options.nested is None else find_text_fields(schema)

    def parse(block: bytes) -> tuple[int, Columns | SeparatedLines]:
        block = quote_nested(block, quoted) if quoted else block
        columns = parser.parse(block)
        if columns is not None:
            return count_lines(block), columns
        lines = block.removesuffix(b"\n").split(b"\n")
        return len(lines), separate_lines(lines, schema, ignores_extra)

    with open_json_lines(path, checker.options) as stream, contextlib.ExitStack() as stack:
        lines = _line_blocks(stream, path, checker.line_bytes_max)
        blocks = read_ahead(_divide_blocks(lines, slice_rows_max(schema)), checker.threads)
        stack.enter_context(contextlib.closing(blocks))
        parsed = map_ahead(parse, blocks, checker.threads)
        stack.enter_context(contextlib.closing(parsed))
        for count, part in parsed:
            start = checker.row
            if isinstance(part, SeparatedLines):
                columns, positions = part.columns, part.places
                for line in part.invalid:
                    checker.reject_row(start + line.place, line.reason, line.text)
            else:
                columns, positions = part, None
            if columns:
                yield checker.parse(columns, text_fields, places=positions)
            checker.row = start + count


def _csv_reader(
    stream: Utf8Stream,
    path: TextFile,
    checker: RowChecker,
    short_rows: list[tuple[int, str, str]],
    text_columns: Sequence[str],
    dialect: Dialect,
) -> csv.CSVStreamingReader:
    def on_invalid_row(row: csv.InvalidRow) -> str:
        reason = f"expected {row.expected_columns} columns, found {row.actual_columns}"
        number = row.number - dialect.has_header if row.number else 0
        short_rows.append((number, reason, row.text))
        return "skip"

    try:
        return csv.open_csv(
            _CheckedCsv(stream, path, checker.line_bytes_max, dialect.delimiter),
            # A row must fit into a block.
            read_options=csv.ReadOptions(
                block_size=max(_BLOCK_BYTES, checker.line_bytes_max),
                use_threads=False,
                column_names=dialect.names if dialect.is_renamed else None,
                # Of the rows after the names, blank ones count.
                skip_rows=dialect.blank_lines,
                skip_rows_after_names=int(dialect.is_renamed and dialect.has_header),
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter,
                newlines_in_values=True,
                invalid_row_handler=on_invalid_row,
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

    def __init__(
        self, stream: Utf8Stream, path: TextFile, value_bytes_max: int, delimiter: str
    ) -> None:
        self._stream = stream
        self._path = path
        self._value_bytes_max = value_bytes_max
        self._values = _ValueEnds(delimiter)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        self._unfinished = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = _BLOCK_BYTES) -> bytes:
        block = self._stream.read(max(size - 1, 1))
        if block.endswith(b"\r"):
            # Arrow interprets a line feed at the start of a block as the second half of a line
            # end, also within quotes.
            block += self._stream.read(1)
        is_ascii = bool(block) and block.isascii() and not self._decoder.getstate()[0]
        try:
            if not is_ascii:
                self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise InvalidRequestError(
                f"file {self._path}: not UTF-8 text: {error} (see --encoding)"
            ) from error
        self._check_values(block)
        return block

    def _check_values(self, block: bytes) -> None:
        content = self._unfinished + block
        end = self._values.find_last(content)
        self._line += int(np.count_nonzero(np.frombuffer(content, np.uint8, end) == _LINE_FEED))
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


class _ValueEnds:
    """Finds ends of values. A quote inside an unquoted value is text."""

    def __init__(self, delimiter: str) -> None:
        self._ends = (delimiter.encode(), b"\n", b"\r")
        end = re.escape(delimiter.encode()) + rb"\r\n"
        # Values with their terminators.
        self._whole = re.compile(
            rb'(?:[^"%b][^%b]*+[%b]|"(?:[^"]++|"")*+"[%b]|[%b])*+' % (end, end, end, end, end)
        )
        # Whether a byte may precede the quote that starts a value, and follow the one that ends it.
        self._may_adjoin = np.isin(np.arange(256), [ord(each) for each in (delimiter, *'"\r\n')])

    def find_last(self, content: bytes) -> int:
        """Returns the end of the last whole value before the first fault."""
        if b'"' not in content:
            return max(content.rfind(each) for each in self._ends) + 1
        lines_end = content.rfind(b"\n") + 1
        is_whole = self._has_whole_values(np.frombuffer(content, np.uint8, lines_end))
        return self._whole.match(content, lines_end if is_whole else 0).end()  # type: ignore[union-attr]

    def _has_whole_values(self, lines: np.ndarray) -> bool:
        """Whether all quotes of whole lines begin or end values, or are doubled within them.

        A doubled quote is the end of a quoted part and the start of another.
        """
        quotes = np.flatnonzero(lines == ord('"'))
        if len(quotes) % 2:
            return False
        starts, ends = quotes[::2], quotes[1::2]
        if len(starts) and not starts[0]:
            starts = starts[1:]
        return bool(
            self._may_adjoin[lines[starts - 1]].all() and self._may_adjoin[lines[ends + 1]].all()
        )


def _named_errors(
    reader: csv.CSVStreamingReader, path: TextFile, short_rows: list[tuple[int, str, str]]
) -> Iterator[tuple[pa.RecordBatch, list[tuple[int, str, str]]]]:
    """Yields batches with the short rows that were found before their end."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except _UNREADABLE as error:
            raise classify_error(
                error, f"file {path}: not a readable CSV file: {error}", InvalidRequestError
            ) from error
        matches = list(short_rows)
        short_rows.clear()
        yield batch, matches


def _parse_json_column(column: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """Parses cells of JSON as the field's type. Returns the reasons of rows that do not fit."""
    return cast_or_find(
        column, field, lambda part: cast_values(_json_cells(part, field), field.type)
    )


def _json_cells(column: pa.Array, field: Field) -> pa.Array:
    """Parses the cells as JSON lines of one field."""
    schema = Schema((_ANY_KEY,), (), (field,))
    name = json.dumps(field.name)
    cells = pc.if_else(pc.fill_null(pc.equal(column, ""), True), "null", column)
    lines = pc.binary_join_element_wise(f"{{{name}:", cells, "}\n", "")
    block = lines.buffers()[2].to_pybytes() if len(lines) else b""
    if count_lines(block) == len(lines):
        columns = BlockParser(schema, ignores_extra=False).parse(block)
        if columns is not None:
            return columns[field.name]
    try:
        content = [line.as_py().encode() for line in lines]
        return parse_lines(content, schema, only=field.name)[field.name]
    except NOT_ROWS as error:
        raise UnfitError(f"not JSON of the field: {error}") from error


@contextlib.contextmanager
def open_csv(
    path: TextFile, options: SourceOptions, fields: Collection[str] | None = None
) -> Iterator[tuple[Utf8Stream, Dialect]]:
    """Opens a CSV file as UTF-8, and finds its dialect. `fields` are those of the table."""
    with Utf8Stream(open_text(path), path, options.encoding, guesses=True) as stream:
        try:
            sample = stream.peek(SAMPLE_BYTES)
        except _UNREADABLE as error:
            raise classify_error(
                error, f"file {path}: not a readable CSV file: {error}", InvalidRequestError
            ) from error
        yield stream, find_dialect(sample, path, options, fields)


def open_json_lines(path: TextFile, options: SourceOptions) -> Utf8Stream:
    """Opens a file of JSON lines as UTF-8."""
    return Utf8Stream(open_text(path), path, options.encoding, guesses=False)


def open_text(path: TextFile) -> IO[bytes]:
    """Opens a file for a sequential read, uncompressed."""
    if isinstance(path, MemoryFile):
        return io.BytesIO(path.content)
    name = path.name.lower()
    content: Any = path
    try:
        if isinstance(path, S3File):
            content = path.open_stream()
        if name.endswith(GZIP_SUFFIX):
            return igzip.open(content)  # type: ignore[no-any-return, no-untyped-call]
        if name.endswith(ZSTD_SUFFIX):
            return pa.CompressedInputStream(content, "zstd")  # type: ignore[no-any-return]
        return path.open("rb") if isinstance(path, Path) else content
    except OSError as error:
        text = f"file {path}: cannot be read: {describe_error(error)}"
        raise classify_error(error, text, InvalidRequestError) from error


def _line_blocks(stream: Utf8Stream, path: TextFile, line_bytes_max: int) -> Iterator[bytes]:
    """Yields whole lines in blocks of some megabytes. InvalidRequestError if one is too long."""
    line, unfinished = 1, b""
    while True:
        try:
            content = stream.read(_LINES_BYTES)
        except _UNREADABLE as error:
            raise classify_error(
                error, f"file {path}: cannot be read: {error}", InvalidRequestError
            ) from error
        end = content.rfind(b"\n") + 1
        block = b"".join((unfinished, memoryview(content)[:end])) if end else b""
        unfinished = content[end:] if end else unfinished + content
        if max(len(block), len(unfinished)) > line_bytes_max:
            _check_lengths((block + unfinished).split(b"\n"), path, line, line_bytes_max)
        if block:
            yield block
            line += count_lines(block)
        if not content:
            if unfinished:
                yield unfinished
            return


def _divide_blocks(blocks: Iterator[bytes], lines_max: int) -> Iterator[bytes]:
    """Yields the blocks in parts of so many lines, because a short line may have many fields."""
    for block in blocks:
        if len(block) <= lines_max or count_lines(block) <= lines_max:
            yield block
            continue
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)[
            lines_max - 1 :: lines_max
        ]
        positions = [0, *(ends + 1).tolist(), len(block)]
        yield from (block[start:stop] for start, stop in pairwise(positions) if start < stop)


def _check_lengths(lines: Sequence[bytes], path: TextFile, first: int, line_bytes_max: int) -> None:
    for number, line in enumerate(lines, start=first):
        if len(line) > line_bytes_max:
            raise InvalidRequestError(
                f"file {path}, line {number}: longer than {line_bytes_max} bytes "
                "(see sleeper.ingest.line.bytes.max)"
            )
