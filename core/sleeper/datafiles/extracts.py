"""The row groups of S3 files that a query needs, as small files on local disk.

The engine asks a store for each file several times: its size, its page index, then pages,
column by column. Here a file costs one request the first time, for its end, and from then on
one for the row groups that may hold what is asked for. They are put where they are in the
whole file, with holes between, under a footer that names no others; so the engine reads
them as any local file, and what it does not find there is not asked for.
"""

import contextlib
import os
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.bounded_cache import BoundedCache
from sleeper.datafiles.bucket_folder import store_errors
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.parquet_footer import (
    MAGIC,
    TAIL_BYTES,
    FooterParts,
    footer_length,
    take_apart,
)
from sleeper.errors import DataError, NotFoundError, StateMovedOnError, UnavailableError
from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region
from sleeper.schema.model import KeyValue, Schema

# More than this is read by the engine itself, as it goes along.
_EXTRACTED_BYTES_MAX = 256 * 1024**2
_REQUESTS_AT_ONCE = 8
_REQUEST_BYTES_MAX = 8 * 1024**2
# Another request takes longer than so many bytes.
_GAP_BYTES_MAX = 1024**2
# A file's end is read on a guess: its footer and page index take about this share of it.
_END_SHARE = 256
_END_BYTES_MIN = 64 * 1024
_END_BYTES_MAX = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class Extract:
    """A local file that has every row of a data file's regions, and how many bytes it took."""

    path: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The least and greatest value of a field in each row group; None where it is not known."""

    low: tuple[Any, ...] | None
    high: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class _FileEnd:
    """What is after a file's rows, and where these are: by row group, bytes from and to."""

    footer: FooterParts
    places: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    fields: tuple[_Bounds, ...]
    index: bytes
    index_at: int
    size: int

    @property
    def kept_bytes(self) -> int:
        groups = sum(map(len, self.footer.row_groups))
        return groups + len(self.index) + len(self.places) * (200 + 150 * len(self.fields))


class Extractor:
    """Makes extracts below a folder, and remembers the ends of files. Safe for threads."""

    def __init__(self, folder: Path, end_cache_bytes: int) -> None:
        self._folder = folder
        self._ends = BoundedCache[_FileEnd](end_cache_bytes, lambda end: end.kept_bytes)
        self._threads = ThreadPoolExecutor(_REQUESTS_AT_ONCE, "s3-ranges")

    @contextlib.contextmanager
    def extracted(
        self,
        root: DataRoot,
        schema: Schema,
        wanted: Sequence[tuple[DataFile, Sequence[Region] | None]],
    ) -> Iterator[dict[str, Extract]]:
        """Extracts by data file, gone when this ends; none of files that are read otherwise.

        That are local ones, those of which every row is wanted (None), and all if it would
        be too much. StateMovedOnError if a file is gone, DataError if it is torn.
        """
        asked = [(file, regions) for file, regions in wanted if regions is not None]
        if not root.buckets or not asked:
            yield {}
            return
        with contextlib.ExitStack() as cleanup:
            files = [file for file, _ in asked]
            ends = list(self._threads.map(lambda file: self._end(root, schema, file), files))
            chosen = [
                _row_groups(end, regions) for end, (_, regions) in zip(ends, asked, strict=True)
            ]
            total = sum(
                e - s for end, of in zip(ends, chosen, strict=True) for s, e in _places(end, of)
            )
            if total > _EXTRACTED_BYTES_MAX:
                yield {}
                return
            yield self._make(root, list(zip(files, ends, chosen, strict=True)), cleanup)

    def _make(
        self,
        root: DataRoot,
        files: Sequence[tuple[DataFile, _FileEnd, Sequence[int]]],
        cleanup: contextlib.ExitStack,
    ) -> dict[str, Extract]:
        made: dict[str, Extract] = {}
        requests: list[tuple[int, str, int, int]] = []
        for file, end, chosen in files:
            path = self._folder / f"extract-{uuid.uuid4().hex}.parquet"
            with _disk_errors(path):
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            cleanup.callback(path.unlink, missing_ok=True)
            cleanup.callback(os.close, descriptor)
            with _disk_errors(path):
                _put(descriptor, MAGIC, 0)
                _put(descriptor, end.index, end.index_at)
                rows = sum(end.rows[i] for i in chosen)
                _put(descriptor, end.footer.with_row_groups(chosen, rows), end.size)
            ranges = _requests(_places(end, chosen))
            requests += [(descriptor, file.path, *each) for each in ranges]
            made[file.path] = Extract(path, sum(e - s for s, e in ranges))
        for _ in self._threads.map(lambda each: _fetch(root, *each), requests):
            pass
        return made

    def _end(self, root: DataRoot, schema: Schema, file: DataFile) -> _FileEnd:
        return self._ends.get(root.url_of(file.path), lambda: _read_end(root, schema, file))


def _read_end(root: DataRoot, schema: Schema, file: DataFile) -> _FileEnd:
    guess = min(max(file.bytes // _END_SHARE, _END_BYTES_MIN), _END_BYTES_MAX)
    start = max(file.bytes - guess, 0)
    tail = _get(root, file.path, start, file.bytes)
    try:
        length = footer_length(tail) + TAIL_BYTES
        if length > file.bytes:
            raise ValueError("its footer is longer than it is itself")
        if length > len(tail):
            tail = _get(root, file.path, file.bytes - length, start) + tail
            start = file.bytes - length
        footer = tail[-length:]
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
        places = tuple(_place(metadata.row_group(i)) for i in range(metadata.num_row_groups))
        index_at = max((end for _, end in places), default=len(MAGIC))
        if index_at < start:
            tail = _get(root, file.path, index_at, start) + tail
            start = index_at
        parts = take_apart(footer[:-TAIL_BYTES])
    except (ValueError, pa.ArrowException, OSError) as error:
        raise DataError(f"data file {file.path} cannot be read: {error}") from error
    return _FileEnd(
        footer=parts,
        places=places,
        rows=tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)),
        fields=tuple(_bounds(metadata, i) for i in range(len(schema.row_keys))),
        index=tail[index_at - start : file.bytes - length - start],
        index_at=index_at,
        size=file.bytes - length,
    )


def _place(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """From its first byte to behind its last."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
    ends = [s + c.total_compressed_size for s, c in zip(starts, columns, strict=True)]
    return min(starts), max(ends)


def _bounds(metadata: pq.FileMetaData, field: int) -> _Bounds:
    # The row key fields are a file's first columns.
    of = [metadata.row_group(i).column(field).statistics for i in range(metadata.num_row_groups)]
    if any(s is None or not s.has_min_max for s in of):
        return _Bounds(None, None)
    return _Bounds(tuple(s.min for s in of), tuple(s.max for s in of))


def _row_groups(end: _FileEnd, regions: Sequence[Region]) -> list[int]:
    """Those that may hold rows of the regions, ascending."""
    found: set[int] = set()
    for region in regions:
        found.update(i for i in _by_first_field(end, region) if _may_hold(end, i, region))
    return sorted(found)


def _by_first_field(end: _FileEnd, region: Region) -> range:
    """The rows are sorted by the first field, so what may hold a range of it is a run."""
    first, within = end.fields[0], region.ranges[0]
    if first.low is None or first.high is None:
        return range(len(end.places))
    stop = len(first.low) if within.max is None else bisect_left(first.low, within.max)
    return range(bisect_left(first.high, within.min), stop)


def _may_hold(end: _FileEnd, group: int, region: Region) -> bool:
    for bounds, within in zip(end.fields[1:], region.ranges[1:], strict=True):
        if bounds.low is None or bounds.high is None:
            continue
        low: KeyValue = bounds.low[group]
        if not within.overlaps_values(low, bounds.high[group]):
            return False
    return True


def _places(end: _FileEnd, groups: Sequence[int]) -> list[tuple[int, int]]:
    return [end.places[i] for i in groups]


def _requests(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in few requests, of which none is very large."""
    joined: list[tuple[int, int]] = []
    for start, end in places:
        is_near = joined and start - joined[-1][1] <= _GAP_BYTES_MAX
        if is_near and end - joined[-1][0] <= _REQUEST_BYTES_MAX:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _fetch(root: DataRoot, descriptor: int, path: str, start: int, end: int) -> None:
    content = _get(root, path, start, end)
    with _disk_errors(path):
        _put(descriptor, content, start)


def _get(root: DataRoot, path: str, start: int, end: int) -> bytes:
    if start == end:
        return b""
    try:
        with store_errors(path):
            found = bytes(obstore.get_range(root.store, path, start=start, end=end))
    except NotFoundError as error:
        raise StateMovedOnError(f"a data file is gone: {root.url_of(path)}") from error
    if len(found) != end - start:
        raise DataError(f"data file {path} has less than {end} bytes")
    return found


def _put(descriptor: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


@contextlib.contextmanager
def _disk_errors(path: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"cannot write what was read of {path}: {error}") from error
