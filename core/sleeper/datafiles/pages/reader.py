"""Reads rows of few pages of data files, with a cache of the files' page indexes."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import eq
from typing import TypeVar

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.conversions import empty_table
from sleeper.datafiles.engine.parquet_footer import TAIL_BYTES, footer_length
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.rows import needed_names
from sleeper.datafiles.pages.file_pages import FilePages, UnknownLayoutError, read_file_pages
from sleeper.datafiles.pages.local_file import LocalFile, open_local
from sleeper.datafiles.pages.read import ByteSource, find_pages, read_selection, select_regions
from sleeper.datafiles.pages.remote_file import FetchedPages, RemoteFile
from sleeper.datafiles.pages.selection import Selection
from sleeper.errors import DataError
from sleeper.files import DataFile
from sleeper.partitions.region import Region, whole_region
from sleeper.schema.model import Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

# The engine reads more rows faster, and streams them.
_ROWS_MAX = 1_000_000
_BYTES_MAX = 32 * 1024**2
# The engine streams larger row groups from S3.
_FETCHED_BYTES_MAX = 256 * 1024**2
# A query may use this share of the memory of all queries.
_MEMORY_SHARE = 16
# The first read of a file's end: most page indexes and footers are smaller.
_END_BYTES = 64 * 1024
_END_BYTES_MAX = 8 * 1024**2
_END_SHARE = 64
_REQUEST_THREADS = 8
_LEAVES_AHEAD = 4
_ENTRY_BYTES = 500
# What the decoding of damaged pages and footers may raise. The engine then reports the damage.
_DAMAGE_ERRORS = (ValueError, IndexError, OverflowError, RecursionError)
# Threads take longer to start than to read fewer regions or rows.
_REGIONS_PER_THREAD = 16
_ROWS_PER_THREAD = 10_000


A = TypeVar("A")
B = TypeVar("B")

_Source = LocalFile | RemoteFile


@dataclass(frozen=True, slots=True)
class _Read:
    """A file to read, its schema with hidden columns, the regions, and names of columns.

    Without regions all rows are read.
    """

    file: DataFile
    schema: Schema
    regions: Sequence[Region] | None
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open file and the pages to read."""

    read: _Read
    source: ByteSource
    pages: FilePages
    selection: Selection


class PageReader:
    """Reads rows of data files. Safe for threads; a process keeps one.

    A read of local files opens at most `files_max` at once. More are left to the engine.
    """

    def __init__(
        self, cache_bytes: int, memory_bytes: int, threads: int, files_max: int = 64
    ) -> None:
        self._files_max = files_max
        self._files = BoundedCache[FilePages | None](cache_bytes, _kept_bytes)
        self._bytes_max = min(_BYTES_MAX, memory_bytes // _MEMORY_SHARE)
        self._threads = ThreadPoolExecutor(threads, "pages") if threads > 1 else None
        # Reads of leaves wait for reads of files, and these for their ranges, so each has threads
        # of its own.
        self._leaves = ThreadPoolExecutor(1 + _LEAVES_AHEAD, "pages-leaves")
        self._requests = ThreadPoolExecutor(_REQUEST_THREADS, "pages-files")
        self._ranges = ThreadPoolExecutor(_REQUEST_THREADS, "pages-ranges")

    def fill(
        self, root: DataRoot, request: MergeRequest, files: Sequence[DataFile], parts: int = 1
    ) -> MergeRequest | None:
        """Returns the merge with the rows of its inputs, which are these files, in memory.

        So many `parts` of a query may be in memory at once. None if only the engine should read
        the files: there are too many rows, or one has an unknown layout or is damaged.
        StateMovedOnError if a file is missing.
        """
        if request.stored is not None or request.numbered:
            return None
        if sum(map(_rows_min, request.inputs, files)) > _ROWS_MAX:
            return None
        if not root.buckets and len(files) > self._files_max:
            return None
        reads = [
            _Read(
                file,
                request.stored_fields(each, each.schema_version),
                each.regions,
                needed_names(request, each),
            )
            for each, file in zip(request.inputs, files, strict=True)
        ]
        try:
            with ExitStack() as stack:
                if root.buckets:
                    opened = self._open_distant(root, reads)
                else:
                    opened = [self._open_local(root, each, stack) for each in reads]
                if not self._fit(opened, parts):
                    return None
                if root.buckets:
                    opened = self._map(_fetch, opened)
                tables = self._read_all(opened)
        except (UnknownLayoutError, DataError, *_DAMAGE_ERRORS) as error:
            logger.debug("the engine reads files: %r", error)
            return None
        pairs = zip(request.inputs, tables, strict=True)
        return replace(request, inputs=tuple(replace(each, rows=rows) for each, rows in pairs))

    def fill_ahead(
        self,
        leaves: Sequence[A],
        fill: Callable[[A, int], MergeRequest | None],
        is_ahead: bool,
    ) -> Generator[MergeRequest, None, None]:
        """Yields what `fill` returns for each leaf, until it returns None.

        `fill` gets the number of leaves that may be in memory at once. It is called for the next
        leaves at the same time if `is_ahead`, and only when a leaf is needed otherwise.
        """
        parts = min(len(leaves), 1 + _LEAVES_AHEAD) if is_ahead else 1
        if parts < 2:
            for leaf in leaves:
                filled = fill(leaf, 1)
                if filled is None:
                    return
                yield filled
            return
        left, pending = deque(leaves), deque[Future[MergeRequest | None]]()
        try:
            while left or pending:
                while left and len(pending) < parts:
                    pending.append(self._leaves.submit(fill, left.popleft(), parts))
                filled = pending.popleft().result()
                if filled is None:
                    return
                yield filled
        finally:
            for each in pending:
                each.cancel()

    def _map(self, function: Callable[[A], B], values: Sequence[A]) -> list[B]:
        # A lone request needs no thread.
        if len(values) == 1:
            return [function(values[0])]
        return list(self._requests.map(function, values))

    def _open_local(self, root: DataRoot, each: _Read, stack: ExitStack) -> _Opened:
        path = root.url_of(each.file.path)
        return self._select(path, each, stack.enter_context(open_local(path)))

    def _open_distant(self, root: DataRoot, reads: Sequence[_Read]) -> list[_Opened]:
        # Ends of files are read in parallel, and those that are known need no threads.
        if all(root.url_of(each.file.path) in self._files for each in reads):
            return [self._open(root, each) for each in reads]
        return self._map(lambda each: self._open(root, each), reads)

    def _open(self, root: DataRoot, each: _Read) -> _Opened:
        source = RemoteFile(root, each.file.path, each.file.bytes, self._ranges.map)
        return self._select(root.url_of(each.file.path), each, source)

    def _select(self, name: str, each: _Read, source: _Source) -> _Opened:
        pages = self._files.get(name, lambda: _load(source, each.file))
        if pages is None:
            raise UnknownLayoutError("the file is known to have an unknown layout")
        regions = (whole_region(each.schema),) if each.regions is None else each.regions
        selection = select_regions(pages, each.schema.row_keys, regions)
        return _Opened(each, source, pages, selection)

    def _fit(self, opened: Sequence[_Opened], parts: int) -> bool:
        """Returns whether the rows of the pages may be in memory, beside the other parts."""
        rows = sum(each.selection.rows for each in opened)
        size = sum(each.selection.rows * each.pages.row_bytes for each in opened)
        if any(isinstance(each.source, RemoteFile) for each in opened):
            # Requests read the gaps between pages of a row group too, which are not kept.
            fetched = sum(each.pages.bytes_of_groups(each.selection.pages) for each in opened)
            if fetched > _FETCHED_BYTES_MAX:
                return False
        return rows <= _ROWS_MAX and size <= self._bytes_max // parts

    def _read_all(self, opened: Sequence[_Opened]) -> list[pa.Table]:
        regions = sum(each.selection.parts for each in opened)
        rows = sum(each.selection.rows for each in opened)
        is_small = regions < _REGIONS_PER_THREAD and rows < _ROWS_PER_THREAD
        if self._threads is None or len(opened) < 2 or is_small:
            return [_read(each) for each in opened]
        return list(self._threads.map(_read, opened))


def _fetch(opened: _Opened) -> _Opened:
    """Fetches the pages of a file on S3, in few requests."""
    if not opened.selection.pages or not isinstance(opened.source, RemoteFile):
        return opened
    each = opened.read
    pages = find_pages(opened.pages, each.schema.row_keys, opened.selection, each.names)
    return replace(opened, source=FetchedPages(opened.source, pages))


def _read(opened: _Opened) -> pa.Table:
    each = opened.read
    keys = each.schema.row_keys
    return _typed(
        each, read_selection(opened.pages, keys, opened.selection, each.names, opened.source)
    )


def _rows_min(each: MergeInput, file: DataFile) -> int:
    """Returns the fewest rows that a read decodes, as far as it is known."""
    return file.rows if each.regions is None else len(each.regions)


def _kept_bytes(pages: FilePages | None) -> int:
    return _ENTRY_BYTES + (0 if pages is None else pages.kept_bytes)


def _load(source: _Source, file: DataFile) -> FilePages | None:
    """Reads the file's end. None if its layout is unknown."""
    size = source.size
    start = max(size - max(_END_BYTES, min(size // _END_SHARE, _END_BYTES_MAX)), 0)
    (tail,) = source.read([(start, size)])
    try:
        length = footer_length(tail) + TAIL_BYTES
        if size != file.bytes or length > size:
            return None
        if length > len(tail):
            start = size - length
            (tail,) = source.read([(start, size)])

        def read(index_at: int) -> tuple[int, bytes]:
            if index_at >= start:
                return start, tail[:-length]
            (before,) = source.read([(index_at, start)])
            return index_at, before + tail[:-length]

        result = read_file_pages(tail[-length:-TAIL_BYTES], read)
    except (UnknownLayoutError, ValueError):
        return None
    return result if result.rows == file.rows else None


def _typed(each: _Read, result: pa.Table | None) -> pa.Table:
    """Returns the rows with the schema's types, and nulls in columns that the file lacks."""
    kinds = {field.name: arrow_type(field.type) for field in each.schema.fields}
    names = list(each.names)
    if result is not None and result.schema.names == names:
        types = result.schema.types
        if all(map(eq, types, (kinds[name] for name in names))):
            return result
    if result is None:
        return empty_table(pa.schema([(name, kinds[name]) for name in each.names]))
    columns = []
    for name in each.names:
        if name in result.schema.names:
            column = result.column(name)
            columns.append(column if column.type == kinds[name] else column.cast(kinds[name]))
        else:
            columns.append(pa.nulls(result.num_rows, kinds[name]))
    return pa.table(columns, names)
