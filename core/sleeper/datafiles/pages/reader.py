"""Reads rows of few pages of data files, with a cache of the files' page indexes."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.parquet_footer import TAIL_BYTES, footer_length
from sleeper.datafiles.merge.plan import MergeInput, MergeRequest
from sleeper.datafiles.merge.rows import needed_names, stored_fields
from sleeper.datafiles.pages.file_pages import FilePages, UnknownLayoutError, read_file_pages
from sleeper.datafiles.pages.local_file import LocalFile, open_local
from sleeper.datafiles.pages.read import Room, TooManyRowsError, read_regions
from sleeper.errors import DataError
from sleeper.files import DataFile
from sleeper.partitions.region import Region, whole_region
from sleeper.schema.model import Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_ROOM_ROWS = 400_000
_ROOM_BYTES_MAX = 32 * 1024**2
# A query may use this share of the memory of all queries.
_ROOM_SHARE = 16
_END_BYTES = 64 * 1024
_ENTRY_BYTES = 500
# Threads take longer to start than to read fewer regions.
_REGIONS_PER_THREAD = 16


@dataclass(frozen=True, slots=True)
class _Read:
    """A file to read, its schema with hidden columns, the regions, and names of columns.

    Without regions all rows are read.
    """

    file: DataFile
    schema: Schema
    regions: Sequence[Region] | None
    names: Sequence[str]


class PageReader:
    """Reads rows of local data files. Safe for threads; a process keeps one."""

    def __init__(self, cache_bytes: int, memory_bytes: int, threads: int) -> None:
        self._files = BoundedCache[FilePages | None](cache_bytes, _kept_bytes)
        self._room_bytes = min(_ROOM_BYTES_MAX, memory_bytes // _ROOM_SHARE)
        self._threads = ThreadPoolExecutor(threads, "pages") if threads > 1 else None

    def fill(
        self, root: DataRoot, request: MergeRequest, files: Sequence[DataFile]
    ) -> MergeRequest | None:
        """Returns the merge with the rows of its inputs, which are these files, in memory.

        None if only the engine should read them: there are too many rows, a file has an unknown
        layout or is damaged, or it is not local. StateMovedOnError if a file is missing.
        """
        if root.buckets or request.stored is not None or request.numbered:
            return None
        if sum(map(_rows_min, request.inputs, files)) > _ROOM_ROWS:
            return None
        reads = [
            _Read(file, stored_fields(request, each), each.regions, needed_names(request, each))
            for each, file in zip(request.inputs, files, strict=True)
        ]
        room = Room(_ROOM_ROWS, self._room_bytes)

        def read(each: _Read) -> pa.Table:
            return _typed(each, self._read_file(root, each, room))

        try:
            tables = self._each(read, reads)
        except (UnknownLayoutError, TooManyRowsError, DataError) as error:
            logger.debug("the engine reads files: %s", error)
            return None
        pairs = zip(request.inputs, tables, strict=True)
        return replace(request, inputs=tuple(replace(each, rows=rows) for each, rows in pairs))

    def _each(self, read: Callable[[_Read], pa.Table], reads: Sequence[_Read]) -> list[pa.Table]:
        regions = sum(len(each.regions or ()) for each in reads)
        if self._threads is None or len(reads) < 2 or regions < _REGIONS_PER_THREAD:
            return [read(each) for each in reads]
        return list(self._threads.map(read, reads))

    def _read_file(self, root: DataRoot, each: _Read, room: Room) -> pa.Table | None:
        path = root.url_of(each.file.path)
        with open_local(path) as source:
            pages = self._files.get(path, lambda: _load(source, each.file))
            if pages is None:
                raise UnknownLayoutError("the file is known to have an unknown layout")
            regions = (whole_region(each.schema),) if each.regions is None else each.regions
            return read_regions(pages, each.schema.row_keys, regions, each.names, source, room)


def _rows_min(each: MergeInput, file: DataFile) -> int:
    """Returns the fewest rows that a read decodes, as far as it is known."""
    return file.rows if each.regions is None else len(each.regions)


def _kept_bytes(pages: FilePages | None) -> int:
    return _ENTRY_BYTES + (0 if pages is None else pages.kept_bytes)


def _load(source: LocalFile, file: DataFile) -> FilePages | None:
    """Reads the file's end. None if its layout is unknown."""
    size = source.size
    start = max(size - _END_BYTES, 0)
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

        found = read_file_pages(tail[-length:-TAIL_BYTES], read)
    except (UnknownLayoutError, ValueError):
        return None
    return found if found.rows == file.rows else None


def _typed(each: _Read, found: pa.Table | None) -> pa.Table:
    """Returns the rows with the schema's types, and nulls in columns that the file lacks."""
    kinds = arrow_schema(each.schema)
    kinds = pa.schema([kinds.field(name) for name in each.names])
    if found is None:
        return kinds.empty_table()
    columns = []
    for kind in kinds:
        if kind.name in found.schema.names:
            column = found.column(kind.name)
            columns.append(column if column.type == kind.type else column.cast(kind.type))
        else:
            columns.append(pa.nulls(found.num_rows, kind.type))
    return pa.Table.from_arrays(columns, schema=kinds)
