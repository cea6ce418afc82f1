"""The files of pieces: documents as gzipped JSON lines, or as columns of Parquet."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from sleeper.stash.documents import DocumentWriter, end_lines
from sleeper.stash.layout import StashFormat

# Of igzip's levels 0 to 3. Documents become as small as with level 1 of zlib, in a third of the
# time (docs/design/0015-stash.md).
_LEVEL = 2
_GZIP_WINDOW_BITS = 31

_ROW_GROUP_BYTES = 16 * 1024**2

Write = Callable[[pa.RecordBatch, pa.Array], None]
"""Writes rows, with the transaction number of each."""


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
