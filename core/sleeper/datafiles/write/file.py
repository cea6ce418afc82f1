"""The writer of a data file and its sidecars: key sketches, key filter and checksum.

The file is Parquet with the table's codec, page and row group sizes, field ids, a page index and a
declared sort order. Its facts (rows, bytes, key bounds) are gathered while it is written.
The first row group decides the encodings and codecs of its columns.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion.dataframe import ParquetWriterOptions

from sleeper.datafiles.arrow import as_light_views, file_schema, is_json
from sleeper.datafiles.sidecars.checksum import FileChecksum, HashedSink
from sleeper.datafiles.write.engine_file import make_durable, write_batches, writer_options
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.datafiles.write.layout import ColumnLayout, Encoding, PageLimits, choose_layout
from sleeper.files import DataFile
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024
_ROW_GROUP_ROWS_MIN = 10_000
# Fewer rows take Arrow's writer less time than a plan of the engine.
_ENGINE_ROWS_MIN = 8_000
# The rows that the engine writes are in memory. Files of more rows have larger pages, because the
# time of Arrow's writer follows from the number of pages.
KEPT_BYTES_MAX = 64 * 1024 * 1024
_PAGE_ROWS_OF_ARROW = 4_096
_WRITE_BATCH_ROWS_MAX = 1024


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The layout of data files (`sleeper.table.parquet.*`, `sleeper.table.key.filter.*`).

    A row group has at most `row_group_rows_max` rows and about `row_group_bytes` in memory, but
    about 10,000 rows at least. A merge holds row groups of all its inputs. A page has at most
    `page_rows_max` rows, or 4,096 if Arrow writes it, so that the pages of all columns have the
    same rows, and about `page_bytes`. With `filter_bits_per_key` 0 there are no key filters.
    """

    compression_codec: str = "zstd"
    row_group_rows_max: int = 100_000
    row_group_bytes: int = 1024 * 1024
    page_bytes: int = 131_072
    page_rows_max: int = 512
    filter_bits_per_key: int = 14
    filter_bytes_max: int = 64 * 1024 * 1024

    def key_facts(self, schema: Schema) -> KeyFacts:
        """Returns a collector for the facts of a file."""
        return KeyFacts(schema, self.filter_bits_per_key, self.filter_bytes_max)

    def row_group_rows(self, rows: int, size: int) -> int:
        """Returns the rows per row group if `rows` rows take `size` bytes."""
        by_size = max(_ROW_GROUP_ROWS_MIN, self.row_group_bytes * rows // max(size, 1))
        whole_pages = by_size // self.page_rows_max * self.page_rows_max
        return min(self.row_group_rows_max, whole_pages or by_size)

    @property
    def pages(self) -> PageLimits:
        """The limits of pages."""
        return PageLimits(self.page_bytes, self.page_rows_max)

    def choose_layout(self, first_rows: pa.Table, schema: Schema) -> tuple[ColumnLayout, ...]:
        """Returns the layouts of the columns of a file with this first row group."""
        keys = [field.name for field in schema.keys]
        return choose_layout(first_rows, keys, self.compression_codec, self.page_rows_max)

    def writer_options(
        self, first_rows: pa.Table, schema: Schema, group_rows: int
    ) -> ParquetWriterOptions:
        """Returns the engine's options for a file that begins with these rows."""
        return writer_options(self.choose_layout(first_rows, schema), self.pages, group_rows)


class DataFileWriter:
    """Writes rows in key order to one data file. `finish` completes it.

    The rows are kept until the file is complete, so that the engine writes them, or until they
    take 64 MiB, from where on Arrow writes row groups as they come. `folder` is a local folder
    for files to upload; without it, Arrow writes objects.

    Batches may have text and bytes as views. They are written as views, because copying short
    texts into plain arrays takes as long as encoding them. An unfinished file is an orphan.
    """

    def __init__(
        self,
        root: DataRoot,
        path: str,
        schema: Schema,
        settings: FileSettings,
        folder: Path | None = None,
    ) -> None:
        self.path = path
        self._root = root
        self._schema = schema
        self._settings = settings
        self._folder = folder
        self._target = file_schema(schema)
        self._kept = _without_json(self._target)
        self._facts = settings.key_facts(schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._group_rows: int | None = None
        self.is_closed = False
        self._stack = contextlib.ExitStack()
        self._sink: HashedSink | None = None
        self._writer: Any = None
        self._encoded: Path | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds batches. Complete row groups of a large file go to the file."""
        typed = [as_light_views(batch, self._kept) for batch in batches]
        self._facts.add(typed)
        for batch in typed:
            if batch.num_rows:
                self._pending.append(batch)
                self._pending_rows += batch.num_rows
                self._pending_bytes += batch.nbytes
        if self._writer is None and self._is_kept():
            return
        if self._group_rows is None and self._pending_rows:
            self._group_rows = self._row_group_rows()
        if (
            self._pending_rows >= (self._group_rows or 0)
            or self._pending_bytes >= ROW_GROUP_BYTES_MAX
        ):
            self._write_row_groups()

    def encode(self) -> None:
        """Writes the last rows, not durably. Takes processor time, `finish` waits for the disk."""
        if not self._pending:
            return
        if self._writer is None and self._pending_rows >= _ENGINE_ROWS_MIN and self._is_kept():
            self._encode_by_engine()
            return
        if self._group_rows is None:
            self._group_rows = self._row_group_rows()
        self._write_row_groups(is_last=True)

    def finish(self) -> DataFile:
        """Completes the file and its sidecars, durably."""
        self.encode()
        if self._encoded is not None:
            size, checksum = make_durable(self._encoded, self._facts.rows)
            unsynced = []
        else:
            size, checksum = self._close_arrow_file()
            unsynced = [self.path]
        self._stack.close()
        self.is_closed = True
        smallest, largest = self._facts.bounds()
        sidecars = (
            *self._facts.write_sidecars(self._root, self.path),
            checksum.write_sidecar(self._root, self.path),
        )
        self._root.sync([*unsynced, *(self.path + suffix for suffix in sidecars)])
        version = self._schema.version
        rows = self._facts.rows
        return DataFile(self.path, rows, size, smallest, largest, version, sidecars)

    def abandon(self) -> None:
        """Closes the file without completing it."""
        self.is_closed = True
        self._pending = []
        unfinished = InterruptedError(f"{self.path} was not finished")
        with contextlib.suppress(Exception):
            # An upload without an error would leave an object that looks complete.
            self._stack.__exit__(type(unfinished), unfinished, None)

    def _is_kept(self) -> bool:
        has_place = self._folder is not None or not self._root.buckets
        return has_place and self._pending_bytes < KEPT_BYTES_MAX

    def _row_group_rows(self) -> int:
        return self._settings.row_group_rows(self._pending_rows, self._pending_bytes)

    def _encode_by_engine(self) -> None:
        group_rows = self._row_group_rows()
        first_rows = pa.Table.from_batches(self._pending).slice(0, group_rows)
        options = self._settings.writer_options(first_rows, self._schema, group_rows)
        location = self._root.local_target(self.path, self._folder or Path())
        local = self._stack.enter_context(location)
        batches, self._pending = self._pending, []
        write_batches(batches, self._schema, local, options)
        self._encoded = local

    def _close_arrow_file(self) -> tuple[int, FileChecksum]:
        if self._writer is None:
            self._begin(self._kept.empty_table())
        assert self._sink is not None
        self._writer.close()
        return self._sink.tell(), self._sink.hasher.finish()

    def _write_row_groups(self, is_last: bool = False) -> None:
        if self._group_rows is None:
            return
        pending = pa.Table.from_batches(self._pending)
        size = self._group_rows
        is_full = self._pending_bytes >= ROW_GROUP_BYTES_MAX
        whole = pending.num_rows if is_last or is_full else pending.num_rows // size * size
        if self._writer is None:
            self._begin(pending.slice(0, size))
        assert self._sink is not None
        for start in range(0, whole, size):
            group = pending.slice(start, min(size, whole - start))
            self._writer.write_table(group.cast(self._target), row_group_size=size)
            self._sink.hasher.end_section()
        rest = pending.slice(whole)
        self._pending = rest.to_batches()
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def _begin(self, first_rows: pa.Table) -> None:
        key_places = range(len(self._schema.keys))
        layouts = self._settings.choose_layout(first_rows, self._schema)
        self._sink = HashedSink(self._stack.enter_context(self._root.sink(self.path, syncs=False)))
        pages = self._settings.pages
        page_rows = pages.rows if self._is_kept() else max(pages.rows, _PAGE_ROWS_OF_ARROW)
        writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            self._target,
            compression={each.path: each.codec for each in layouts},
            use_dictionary=[e.path for e in layouts if e.encoding is Encoding.DICTIONARY],
            column_encoding={
                e.path: e.encoding.value for e in layouts if e.encoding is not Encoding.DICTIONARY
            },
            data_page_size=pages.bytes,
            max_rows_per_page=page_rows,
            write_batch_size=min(page_rows, _WRITE_BATCH_ROWS_MAX),
            # Columns of more distinct values fall back to plain pages, which are smaller.
            dictionary_pagesize_limit=pages.dictionary_bytes,
            write_page_index=True,
            # For files without a `.checksum`. DataFusion does not verify page checksums.
            write_page_checksum=True,
            # The stored schema would have views. Readers infer plain types from Parquet's types.
            store_schema=False,
            # Elements of lists keep the names of the schema.
            use_compliant_nested_type=False,
            sorting_columns=[pq.SortingColumn(i, nulls_first=False) for i in key_places],
        )
        self._writer = self._stack.enter_context(writer)
        # The magic is a section of its own.
        self._sink.hasher.end_section()


def _without_json(kinds: pa.Schema) -> pa.Schema:
    """Returns the schema with text for JSON, because Arrow computes nothing of JSON."""
    return pa.schema([f.with_type(pa.string_view()) if is_json(f.type) else f for f in kinds])
