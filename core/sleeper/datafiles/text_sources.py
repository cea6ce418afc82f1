"""CSV and JSON lines, read in blocks of a few megabytes.

CSV has a header line with the columns' names; an empty value that is not quoted is null
where the field is nullable; bytes are base64; lists and maps are JSON. In JSON lines a
map is an object. Both may be compressed with gzip.
"""

import codecs
import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as pj

from sleeper.datafiles.arrow import UnfitError, arrow_type, cast_or_find, cast_values
from sleeper.datafiles.s3_file import S3File
from sleeper.datafiles.sources import Columns, RowChecker, SourceFile, combined
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema

_BLOCK_BYTES = 8 * 1024 * 1024
_ANY_KEY = Field("\n", PrimitiveType.LONG)
# What Arrow says, the disk, and a compressed file that is cut off or torn.
_UNREADABLE = (pa.ArrowInvalid, OSError, EOFError, zlib.error)
_TEXT_IN_JSON = frozenset({PrimitiveType.BYTE_ARRAY, PrimitiveType.TIMESTAMP, PrimitiveType.DATE})


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
    text_fields = frozenset(f.name for f in checker.schema.fields if f.type in _TEXT_IN_JSON)
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
        return _parse_lines(lines, Schema((_ANY_KEY,), (), (field,)), only=field.name)[field.name]
    except ValueError as error:  # Arrow's own is one
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
        columns = _parse_lines(lines, checker.schema)
    except (pa.ArrowInvalid, ValueError) as error:
        if len(lines) == 1:
            reason = _reason(lines[0], checker.schema, error)
            text = lines[0].decode(errors="replace").rstrip("\n")
            checker.reject_row(checker.row + first, reason, text)
            return
        half = len(lines) // 2
        yield from _parsed_by_halves(lines[:half], checker, first)
        yield from _parsed_by_halves(lines[half:], checker, first + half)
        return
    if columns:
        yield first, columns


def _reason(line: bytes, schema: Schema, error: Exception) -> str:
    """Why the line is no row, with the field to blame if it is one field's value."""
    with contextlib.suppress(ValueError):
        row = json.loads(line)
        for name, value in row.items() if isinstance(row, dict) else ():
            if name in {f.name for f in schema.fields}:
                try:
                    _parse_lines([json.dumps({name: value}).encode()], schema, only=name)
                except (pa.ArrowInvalid, ValueError) as of_field:
                    return f"field {name!r}: {str(of_field).splitlines()[0]}"
    return f"not a row of the table: {str(error).splitlines()[0]}"


def _parse_lines(lines: list[bytes], schema: Schema, only: str | None = None) -> Columns:
    fields = [f for f in schema.fields if only in (None, f.name)]
    maps = [f.name for f in fields if isinstance(f.type, MapType)]
    if maps:
        lines = [_with_maps_as_pairs(line, maps) for line in lines if line.strip()]
    wanted = pa.schema([pa.field(f.name, _json_type(f.type)) for f in fields])
    rows = [line if line.endswith(b"\n") else line + b"\n" for line in lines if line.strip()]
    if not rows:
        return {}
    content = b"".join(rows)
    table = pj.read_json(
        io.BytesIO(content),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(content) + 1),
        parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
    )
    if table.num_rows != len(rows):
        raise ValueError("more than one object in a line")
    columns = {name: combined(table.column(name)) for name in wanted.names}
    for name in maps:
        columns[name] = _map_of_pairs(columns[name], schema.field(name).type)
    return columns


def _with_maps_as_pairs(line: bytes, maps: list[str]) -> bytes:
    # Arrow's JSON reader knows no maps, so an object becomes a list of key and value here.
    row: Any = json.loads(line)
    if isinstance(row, dict):
        for name in maps:
            if isinstance(row.get(name), dict):
                row[name] = [{"key": k, "value": v} for k, v in row[name].items()]
    return json.dumps(row).encode()


def _json_type(field_type: Any) -> pa.DataType:
    if field_type in _TEXT_IN_JSON:
        return pa.string()
    if isinstance(field_type, MapType):
        pair = [("key", pa.string()), ("value", arrow_type(field_type.value))]
        return pa.list_(pa.struct(pair))
    if isinstance(field_type, ListType):
        return pa.list_(arrow_type(field_type.element))
    return arrow_type(field_type)


def _map_of_pairs(pairs: pa.Array, field_type: Any) -> pa.Array:
    wanted = arrow_type(field_type)
    keys, values = pairs.values.flatten() if len(pairs.values) else (pa.nulls(0), pa.nulls(0))
    return pa.MapArray.from_arrays(
        _offsets_with_nulls(pairs), keys.cast(wanted.key_type), values.cast(wanted.item_type)
    )


def _offsets_with_nulls(lists: pa.ListArray) -> pa.Array:
    if not lists.null_count:
        return lists.offsets
    present = pa.concat_arrays([lists.is_valid(), pa.array([True])])
    return pc.if_else(present, lists.offsets, pa.scalar(None, lists.offsets.type))
