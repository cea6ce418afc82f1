"""Writers of the rows of a query: a table of text, CSV, JSON lines, an Arrow stream, Parquet.

`sleeper ingest` can read the CSV and JSON lines. In CSV, bytes are base64, lists and maps are
JSON, and a null is an empty value without quotes.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import BinaryIO

import pyarrow as pa
from rich.cells import cell_len

from sleeper.datafiles.json_text import json_lines, plain_text
from sleeper.query.printable import format_cell
from sleeper.query.rows.batch_writers import BatchWriter, CsvWriter, open_arrow, open_parquet
from sleeper.query.rows.json_pages import join_lines

RowOutput = Callable[[pa.Schema, Iterable[pa.RecordBatch], BinaryIO], int]
"""Writes all rows and returns their number."""

_PAGE_ROWS = 100
_CELL_WIDTH_MAX = 60
_GAP = "  "


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> int:
    """Writes columns of text under their names, in pages, whose columns can become wider.

    Only this format converts values to Python objects, as it is for terminals.
    """
    widths = [cell_len(format_cell(name, _CELL_WIDTH_MAX)) for name in schema.names]
    right = [_is_number(f.type) for f in schema]
    rows = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            page = batch.slice(start, _PAGE_ROWS)
            cells = [_cells(column) for column in page.columns]
            wider = [max(w, *map(cell_len, c)) for w, c in zip(widths, cells, strict=True)]
            if rows == 0:
                _write_heading(schema, wider, right, sink)
            widths = wider
            for row in zip(*cells, strict=True):
                sink.write(_line(row, widths, right))
            rows += page.num_rows
    if rows == 0:
        _write_heading(schema, widths, right, sink)
    return rows


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> int:
    """Writes a line of names, then a line per row, with quoted strings."""
    return _write_batches(CsvWriter(schema, sink), batches)


def write_json(_schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> int:
    """Writes a JSON object per line."""
    rows = 0
    for batch in batches:
        if batch.num_rows:
            sink.write(join_lines(json_lines(batch), "\n").as_buffer())
            sink.write(b"\n")
            rows += batch.num_rows
    return rows


def write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> int:
    """Writes an Arrow IPC stream."""
    return _write_batches(open_arrow(schema, sink), batches)


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> int:
    """Writes a Parquet file."""
    return _write_batches(open_parquet(schema, sink), batches)


def write_client_parquet(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], sink: BinaryIO, codec: str = "zstd"
) -> int:
    """Writes a Parquet file that clients of gchq/sleeper can read too."""
    return _write_batches(open_parquet(schema, sink, codec, for_clients=True), batches)


ROW_OUTPUTS: dict[str, RowOutput] = {
    "table": write_table,
    "csv": write_csv,
    "json": write_json,
    "arrow": write_arrow,
    "parquet": write_parquet,
}
"""Writers by the name of the format on the command line."""


def _write_batches(
    opened: AbstractContextManager[BatchWriter], batches: Iterable[pa.RecordBatch]
) -> int:
    rows = 0
    with opened as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _cells(column: pa.Array) -> list[str]:
    texts = (text or "" for text in plain_text(column).to_pylist())
    return [format_cell(text, _CELL_WIDTH_MAX) for text in texts]


def _write_heading(schema: pa.Schema, widths: list[int], right: list[bool], sink: BinaryIO) -> None:
    sink.write(_line([format_cell(name, _CELL_WIDTH_MAX) for name in schema.names], widths, right))
    sink.write((_GAP.join("─" * w for w in widths) + "\n").encode())


def _line(cells: Iterable[str], widths: list[int], right: list[bool]) -> bytes:
    padded = []
    for text, width, to_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(text))
        padded.append(space + text if to_right else text + space)
    return (_GAP.join(padded).rstrip() + "\n").encode()


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
