"""Rows as documents of a stash, made of whole columns: JSON objects, or columns of Parquet.

A document has the fields of its row, in JSON as docs/formats.md specifies for rows, and then those
of the stash, whose names begin with `~`. A field of the table whose name begins with `~` gets one
more.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datafusion import functions
from isal import isal_zlib

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import map_column
from sleeper.datafiles.json_text import json_values, plain_text
from sleeper.schema.model import Field, Schema
from sleeper.stash.document_values import DOCUMENT_FIELDS, document_columns
from sleeper.stash.flat_documents import document_content
from sleeper.stash.layout import StashFormat

_MILLISECONDS = pa.timestamp("ms", "UTC")
_TO_QUOTE = r'[",\r\n]'
TimesOf = Callable[[Sequence[int]], Sequence[int]]
"""Returns the time in milliseconds of each transaction number."""

# Of igzip's levels 0 to 3. Documents become as small as with level 1 of zlib, in a third of the
# time (docs/design/0015-stash.md).
_LEVEL = 2
_GZIP_WINDOW_BITS = 31
_ROW_GROUP_BYTES = 16 * 1024**2

Write = Callable[[pa.RecordBatch, pa.Array], None]
"""Writes rows, with the transaction number of each."""


def document_fields(schema: Schema) -> Schema:
    """Returns the fields of a table's documents."""
    named = zip(document_columns(schema), schema.fields, strict=True)
    values = [
        Field(name, each.type, each.nullable, document=each.document)
        for name, each in named
        if name != DOCUMENT_FIELDS[0].name
    ]
    # Documents have no order by key, and no field is a key.
    return Schema(DOCUMENT_FIELDS[:1], (), (*values, *DOCUMENT_FIELDS[1:]))


def _document_name(fields: Schema) -> str | None:
    return None if fields.document is None else fields.document.name


def document_lines(documents: pa.RecordBatch, fields: Schema) -> pa.Array:
    """Returns a line of JSON, without its end, for each row with the columns of a document.

    `fields` are those that `document_fields` returned.
    """
    own = len(DOCUMENT_FIELDS) - 1
    values = documents.select(documents.schema.names[1:-own])
    ids, table, version, signature, _, first, last = (
        documents.column(each.name) for each in DOCUMENT_FIELDS
    )
    times = (plain_text(time.cast(_MILLISECONDS)) for time in (first, last))
    content = document_content(values, _document_name(fields))
    return _join(content, ids, json_values(table), version, signature, *times)


def end_lines(lines: pa.Array) -> pa.Buffer:
    """Returns the lines with their ends, as one text."""
    ended = pc.binary_join_element_wise(lines, "", "\n")
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), ended)
    return pc.binary_join(whole, "")[0].as_buffer()


def _join(
    content: pa.Array,
    ids: pa.Array,
    table: str | pa.Array,
    versions: pa.Array,
    signatures: pa.Array,
    first: pa.Array,
    last: pa.Array,
) -> pa.Array:
    """Returns the documents of JSON objects, which are the `content`, and the other fields."""
    return pc.binary_join_element_wise(
        pc.binary_replace_slice(content, -1, 2**31 - 1, ""),
        pc.if_else(pc.equal(content, "{}"), '"~id":', ',"~id":'),
        json_values(ids),
        ',"~table":',
        table,
        ',"~version":',
        versions.cast(pa.string()),
        ',"~signature":"',
        signatures,
        '","~deleted":false,"~firstUpdateAt":"',
        first,
        '","~lastUpdateAt":"',
        last,
        '"}',
        "",
    )


class DocumentWriter:
    """Makes documents of a table's rows. `times_of` is called once for each number.

    `schema` is that of documents as columns.
    """

    def __init__(self, table: str, schema: Schema, times_of: TimesOf) -> None:
        names = document_columns(schema)
        own = DOCUMENT_FIELDS[0].name
        # Without the row key that is the own field of documents.
        self._names = [name for name in names if name != own]
        self._kept = [at for at, name in enumerate(names) if name != own]
        self._keys = len(schema.row_keys)
        fields = document_fields(schema)
        self._document = _document_name(fields)
        self.schema = arrow_schema(fields)
        self._table = pa.scalar(table)
        self._table_json = json_values(pa.array([table]))[0].as_py()
        self._times_of = times_of
        self._times: dict[int, int] = {}

    def lines(self, rows: pa.RecordBatch, numbers: pa.Array) -> pa.Array:
        """Returns a line of JSON, without its end, for each row and its transaction number."""
        content = self._content(rows)
        distinct, positions = self._distinct_times(numbers)
        time = plain_text(distinct).take(positions)
        ids, signatures = self._ids(rows), _signatures(content)
        return _join(content, ids, self._table_json, numbers, signatures, time, time)

    def columns(self, rows: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
        """Returns the columns of a document for each row and its transaction number."""
        # Signatures do not depend on the format, so that documents of both can be compared.
        signatures = _signatures(self._content(rows))
        distinct, positions = self._distinct_times(numbers)
        time = distinct.cast(pa.timestamp("us", "UTC")).take(positions)
        table = pa.repeat(self._table, len(rows))
        deleted = pa.repeat(pa.scalar(False), len(rows))
        own = [table, numbers, signatures, deleted, time, time]
        return pa.RecordBatch.from_arrays(
            [self._ids(rows), *rows.select(self._kept).columns, *own], schema=self.schema
        )

    def _content(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns a JSON object of the fields of each row, with their names in documents."""
        named = rows.select(self._kept).rename_columns(self._names)
        return document_content(named, self._document)

    def _ids(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns the row key as text; of several fields, as a line of CSV."""
        texts = [plain_text(rows.column(position)) for position in range(self._keys)]
        return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*map(_csv, texts), ",")

    def _distinct_times(self, numbers: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Returns the distinct times of transactions, and the position of each row's among them."""
        distinct, positions = np.unique(numbers.to_numpy(), return_inverse=True)
        unknown = [number for number in distinct.tolist() if number not in self._times]
        if unknown:
            self._times.update(zip(unknown, self._times_of(unknown), strict=True))
        times = [self._times[number] for number in distinct.tolist()]
        return pa.array(times, pa.int64()).cast(_MILLISECONDS), pa.array(positions)


def _signatures(content: pa.Array) -> pa.Array:
    return map_column(content, functions.md5, pa.string())


def _csv(text: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(text, _TO_QUOTE), quoted, text)


def write_documents(
    format: StashFormat, documents: DocumentWriter, sink: Any
) -> AbstractContextManager[Write]:
    """Returns a context that writes the documents of rows to `sink`, complete when it ends."""
    if format is StashFormat.PARQUET:
        return _write_parquet(documents, sink)
    return _write_json(documents, sink)


@contextmanager
def _write_json(documents: DocumentWriter, sink: Any) -> Iterator[Write]:
    compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)

    def write(rows: pa.RecordBatch, numbers: pa.Array) -> None:
        sink.write(compressor.compress(end_lines(documents.lines(rows, numbers))))

    yield write
    sink.write(compressor.flush())


@contextmanager
def _write_parquet(documents: DocumentWriter, sink: Any) -> Iterator[Write]:
    kept: list[pa.RecordBatch] = []

    def write(rows: pa.RecordBatch, numbers: pa.Array) -> None:
        kept.append(documents.columns(rows, numbers))
        if sum(batch.nbytes for batch in kept) >= _ROW_GROUP_BYTES:
            write_group()

    def write_group() -> None:
        group = pa.Table.from_batches(kept)
        kept.clear()
        writer.write_table(group, row_group_size=len(group))

    with pq.ParquetWriter(
        sink, documents.schema, compression="zstd", write_page_checksum=True
    ) as writer:
        yield write
        if kept:
            write_group()
