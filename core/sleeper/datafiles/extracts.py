"""The row groups of S3 files that a query needs, as small files on local disk.

The engine asks a store for each file several times: its size, its page index, then pages,
column by column. Here a file costs one request the first time, for its end, and from then on
one for the row groups that may hold what is asked for. They are put where they are in the
whole file, with holes between, under a footer that names no others; so the engine reads
them as any local file, and what it does not find there is not asked for.
"""

import contextlib
import logging
import os
import uuid
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import obstore

from sleeper.datafiles.bounded_cache import BoundedCache
from sleeper.datafiles.file_end import FileEnd, read_file_end, read_range, row_groups_holding
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.parquet_footer import MAGIC
from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import Schema

logger = logging.getLogger(__name__)

# More than this is read by the engine itself, as it goes along.
_EXTRACTED_BYTES_MAX = 256 * 1024**2
_REQUESTS_AT_ONCE = 8
_LEAVES_AHEAD = 4
_REQUEST_BYTES_MAX = 16 * 1024**2
# Another request takes longer than so many bytes.
_GAP_BYTES_MAX = 1024**2
# A row group, and where the next one begins.
_BYTES_PER_KEY = 2 * 1024**2


@dataclass(frozen=True, slots=True)
class Extract:
    """A local file that has every row of a data file's regions, and how many bytes it took."""

    path: Path
    bytes: int


Wanted = Sequence[tuple[DataFile, Sequence[Region] | None]]
"""A leaf's files, and the regions whose rows are wanted of each; None for every row."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The extracts of a leaf, and what deletes them."""

    extracts: Mapping[str, Extract]
    cleanup: contextlib.ExitStack


class Extractor:
    """Makes extracts below a folder, and remembers the ends of files. Safe for threads."""

    def __init__(self, folder: Path, end_cache_bytes: int) -> None:
        self._folder = folder
        self._ends = BoundedCache[FileEnd](end_cache_bytes, lambda end: end.kept_bytes)
        self._threads = ThreadPoolExecutor(_REQUESTS_AT_ONCE, "s3-ranges")
        self._leaves = ThreadPoolExecutor(_LEAVES_AHEAD + 1, "s3-extracts")

    def of_leaves(
        self, root: DataRoot, schema: Schema, leaves: Sequence[Wanted], ahead: int = _LEAVES_AHEAD
    ) -> Generator[Mapping[str, Extract], None, None]:
        """For one leaf after another the extracts by data file, gone when the next is asked for.

        There is none of files that are read otherwise: local ones, those of which every row
        is wanted (None), and all of a leaf's if it would be too much. Some leaves' extracts are
        made ahead. StateMovedOnError if a file is gone, DataError if it is torn.
        """
        if not root.buckets:
            yield from ({} for _ in leaves)
            return
        coming: deque[tuple[Future[_Made], int]] = deque()
        left = deque(leaves)

        def begin(count: int) -> None:
            while left and len(coming) < count:
                most = sum(_bytes_at_most(schema, *each) for each in left[0])
                if coming and sum(n for _, n in coming) + most > _EXTRACTED_BYTES_MAX:
                    return
                wanted = left.popleft()
                coming.append((self._leaves.submit(self._made, root, schema, wanted), most))

        try:
            while left or coming:
                begin(1 + ahead)
                made = coming.popleft()[0].result()
                with made.cleanup:
                    begin(ahead)
                    yield made.extracts
        finally:
            for future, _ in coming:
                if not future.cancel() and future.exception() is None:
                    future.result().cleanup.close()

    def _made(self, root: DataRoot, schema: Schema, wanted: Wanted) -> "_Made":
        asked = [(file, regions) for file, regions in wanted if regions is not None]
        ends = list(self._threads.map(lambda each: self._end(root, schema, each[0]), asked))
        files = [
            (file, end, row_groups_holding(end, regions))
            for (file, regions), end in zip(asked, ends, strict=True)
        ]
        total = sum(e - s for _, end, chosen in files for s, e in _places(end, chosen))
        with contextlib.ExitStack() as cleanup:
            made: dict[str, Extract] = {}
            if total <= _EXTRACTED_BYTES_MAX:
                try:
                    made = self._make(root, files, cleanup)
                except OSError as error:
                    logger.warning("the engine reads S3 itself, the disk refuses: %s", error)
            return _Made(made, cleanup.pop_all())
        raise AssertionError

    def _make(
        self,
        root: DataRoot,
        files: Sequence[tuple[DataFile, FileEnd, Sequence[int]]],
        cleanup: contextlib.ExitStack,
    ) -> dict[str, Extract]:
        made: dict[str, Extract] = {}
        requests: list[tuple[int, str, int, int]] = []
        for file, end, chosen in files:
            path = self._folder / f"extract-{uuid.uuid4().hex}.parquet"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            cleanup.callback(path.unlink, missing_ok=True)
            cleanup.callback(os.close, descriptor)
            _put(descriptor, MAGIC, 0)
            _put(descriptor, end.index, end.index_at)
            rows = sum(end.rows[i] for i in chosen)
            _put(descriptor, end.footer.with_row_groups(chosen, rows), end.size)
            ranges = _requests(_places(end, chosen))
            requests += [(descriptor, file.path, *each) for each in ranges]
            made[file.path] = Extract(path, sum(e - s for s, e in ranges))
        fetches = [self._threads.submit(_fetch, root, *each) for each in requests]
        try:
            for fetch in fetches:
                fetch.result()
        finally:
            # None may write to a descriptor that is closed by then, and another file's.
            for fetch in fetches:
                fetch.cancel()
            wait(fetches)
        return made

    def _end(self, root: DataRoot, schema: Schema, file: DataFile) -> FileEnd:
        return self._ends.get(root.url_of(file.path), lambda: read_file_end(root, schema, file))


def _bytes_at_most(schema: Schema, file: DataFile, regions: Sequence[Region] | None) -> int:
    """About, before the file's end is read."""
    if regions is None:
        return 0
    is_keys = all(key_of_region(schema, region) is not None for region in regions)
    return min(file.bytes, len(regions) * _BYTES_PER_KEY) if is_keys else file.bytes


def _places(end: FileEnd, groups: Sequence[int]) -> list[tuple[int, int]]:
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
    _put(descriptor, read_range(root, path, start, end), start)


def _put(descriptor: int, content: bytes | obstore.Bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
