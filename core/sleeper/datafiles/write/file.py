"""Writes sorted rows as a data file with its sidecars: key sketches, a key filter, a checksum.

The file is Parquet with the table's codec, page and row group sizes, a page index and
its sort order declared. Its facts (rows, bytes, key bounds) are gathered on the way,
so that nobody has to open it again to commit it.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import as_light_views, view_schema
from sleeper.datafiles.sidecars.checksum import HashedSink
from sleeper.datafiles.write.encoding import dictionary_columns
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.files.data_file import DataFile
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024
_ROW_GROUP_ROWS_MIN = 10_000
# A dictionary pays while it is small: of values that hardly repeat it only costs the reader
# memory and time, so a column that outgrows half a page goes on without one.
DICTIONARIES_PER_PAGE = 2


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How data files are written (`sleeper.table.parquet.*`, `sleeper.table.key.filter.*`).

    A row group ends at `row_group_rows_max` rows, or sooner at about `row_group_bytes` in
    memory, though not before 10,000 rows: a merge holds row groups of all its inputs. With
    `filter_bits_per_key` 0 there are no key filters.
    """

    compression_codec: str = "zstd"
    row_group_rows_max: int = 100_000
    row_group_bytes: int = 1024 * 1024
    page_bytes: int = 131_072
    filter_bits_per_key: int = 14
    filter_bytes_max: int = 32 * 1024 * 1024

    def key_facts(self, schema: Schema) -> KeyFacts:
        """To gather what the sidecars of a file are made of."""
        return KeyFacts(schema, self.filter_bits_per_key, self.filter_bytes_max)

    def row_group_rows(self, rows: int, size: int) -> int:
        """How many rows to put into a row group, where so many rows take so many bytes."""
        by_size = self.row_group_bytes * rows // max(size, 1)
        return min(self.row_group_rows_max, max(_ROW_GROUP_ROWS_MIN, by_size))


class DataFileWriter:
    """One data file being written. Rows come in key order; `finish` makes it whole.

    Batches may have text and bytes as views, and are written so: to copy short texts into
    plain arrays took as long as to encode them. A file that is not finished is an orphan.
    """

    def __init__(self, root: DataRoot, path: str, schema: Schema, settings: FileSettings) -> None:
        self.path = path
        self._root = root
        self._schema = schema
        self._settings = settings
        self._target = view_schema(schema)
        self._facts = settings.key_facts(schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._group_rows: int | None = None
        self.rows = 0
        self.is_closed = False
        self._stack = contextlib.ExitStack()
        self._sink = HashedSink(self._stack.enter_context(root.sink(path)))
        self._writer: Any = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds the batches; whole row groups go to the file, the rest waits for more."""
        typed = [as_light_views(batch, self._target) for batch in batches]
        self._facts.add(typed)
        for batch in typed:
            if batch.num_rows:
                self._pending.append(batch)
                self._pending_rows += batch.num_rows
                self._pending_bytes += batch.nbytes
        if self._group_rows is None and self._pending_rows:
            self._group_rows = self._settings.row_group_rows(
                self._pending_rows, self._pending_bytes
            )
        if (
            self._pending_rows >= (self._group_rows or 0)
            or self._pending_bytes >= ROW_GROUP_BYTES_MAX
        ):
            self._write_row_groups()

    def finish(self) -> DataFile:
        """Closes the file and writes its sidecars; all are durable when this returns."""
        if self._pending:
            self._write_row_groups(is_last=True)
        if self._writer is None:
            self._begin(self._target.empty_table())
        self._writer.close()
        checksum = self._sink.hasher.finish()
        size = self._sink.tell()
        self._stack.close()
        self.is_closed = True
        smallest, largest = self._facts.bounds()
        sidecars = (
            *self._facts.write_sidecars(self._root, self.path),
            checksum.write_sidecar(self._root, self.path),
        )
        return DataFile(self.path, self.rows, size, smallest, largest, sidecars=sidecars)

    def _write_row_groups(self, is_last: bool = False) -> None:
        if self._group_rows is None:
            return
        pending = pa.Table.from_batches(self._pending)
        size = self._group_rows
        is_full = self._pending_bytes >= ROW_GROUP_BYTES_MAX
        whole = pending.num_rows if is_last or is_full else pending.num_rows // size * size
        if self._writer is None:
            self._begin(pending.slice(0, size))
        for start in range(0, whole, size):
            group = pending.slice(start, min(size, whole - start))
            self._writer.write_table(group, row_group_size=size)
            self._sink.hasher.end_section()
        self.rows += whole
        rest = pending.slice(whole)
        self._pending = rest.to_batches()
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def abandon(self) -> None:
        """Lets go of the file without making it whole."""
        self.is_closed = True
        unfinished = InterruptedError(f"{self.path} was not finished")
        with contextlib.suppress(Exception):
            # An upload that ends without an error would leave an object that looks whole.
            self._stack.__exit__(type(unfinished), unfinished, None)

    def _begin(self, first_rows: pa.Table) -> None:
        key_places = range(len(self._schema.keys))
        writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            self._target,
            compression=self._settings.compression_codec,
            use_dictionary=dictionary_columns(first_rows),
            data_page_size=self._settings.page_bytes,
            # A reader of one page reads the dictionary too, so it is no larger than a page;
            # columns of more different values fall back to plain pages, which are smaller.
            dictionary_pagesize_limit=self._settings.page_bytes // DICTIONARIES_PER_PAGE,
            write_page_index=True,
            # For files whose `.checksum` is lost: the engine itself does not look at them.
            write_page_checksum=True,
            # It would name the views; the types that readers want follow from Parquet's own.
            store_schema=False,
            sorting_columns=[pq.SortingColumn(i, nulls_first=False) for i in key_places],
        )
        self._writer = self._stack.enter_context(writer)
        # The magic, so that the next section is the first row group.
        self._sink.hasher.end_section()
