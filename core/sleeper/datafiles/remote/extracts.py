"""The row groups of S3 files that a query needs, as small files on local disk.

The engine asks a store for each file several times: its size, its page index, then pages,
column by column. Here a file costs one request the first time, for its end, and from then on
one for the row groups that may hold what is asked for. They are put where they are in the
whole file, with holes between, under a footer that names no others; so the engine reads
them as any local file, and what it does not find there is not asked for.
"""

import contextlib
import logging
import shutil
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sleeper.datafiles.remote.extract_files import Extract, make_extracts
from sleeper.datafiles.remote.file_end import FileEnd, read_file_end, row_groups_holding
from sleeper.datafiles.sidecars.file_check import verify_bytes
from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)
# More than this is read by the engine itself, as it goes along.
_EXTRACTED_BYTES_MAX = 256 * 1024**2
_REQUESTS_AT_ONCE = 8
_LEAVES_AHEAD = 4
# A row group, and where the next one begins.
_BYTES_PER_KEY = 2 * 1024**2
Wanted = Sequence[tuple[DataFile, Sequence[Region] | None]]
"""A leaf's files, and the regions whose rows are wanted of each; None for every row."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The extracts of a leaf, and what deletes them."""

    extracts: Mapping[str, Extract]
    cleanup: contextlib.ExitStack


class Extractor:
    """Makes extracts below a folder, and remembers the ends of files. Safe for threads."""

    def __init__(self, folder: Path, end_cache_bytes: int, verify: bool = False) -> None:
        self._folder = folder
        self._verify = verify
        self._ends = BoundedCache[FileEnd](end_cache_bytes, lambda end: end.kept_bytes)
        self._threads = ThreadPoolExecutor(_REQUESTS_AT_ONCE, "s3-ranges")
        self._leaves = ThreadPoolExecutor(_LEAVES_AHEAD + 1, "s3-extracts")

    def of_leaves(
        self, root: DataRoot, schema: Schema, leaves: Sequence[Wanted], ahead: int = _LEAVES_AHEAD
    ) -> Generator[Mapping[str, Extract], None, None]:
        """For one leaf after another the extracts by data file, gone when the next is asked for.

        There is none of files that are read otherwise: local ones, those of which every row
        is wanted (None), and all of a leaf's if it would be too much. Some leaves' extracts are
        made ahead. StateMovedOnError if a file is gone, DataError if it is torn, or damaged where
        the extractor is to verify what it reads.
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
        total = sum(end.bytes_of(chosen) for _, end, chosen in files)
        with contextlib.ExitStack() as cleanup:
            made: dict[str, Extract] = {}
            if total <= _EXTRACTED_BYTES_MAX:
                try:
                    made = make_extracts(root, files, self._folder, self._threads, cleanup)
                except OSError as error:
                    logger.warning("the engine reads S3 itself, the disk refuses: %s", error)
            return _Made(made, cleanup.pop_all())
        raise AssertionError

    def _end(self, root: DataRoot, schema: Schema, file: DataFile) -> FileEnd:
        return self._ends.get(root.url_of(file.path), lambda: self._read(root, schema, file))

    def _read(self, root: DataRoot, schema: Schema, file: DataFile) -> FileEnd:
        return read_file_end(root, schema, file, self._verify)


def _bytes_at_most(schema: Schema, file: DataFile, regions: Sequence[Region] | None) -> int:
    """About, before the file's end is read."""
    if regions is None:
        return 0
    is_keys = all(key_of_region(schema, region) is not None for region in regions)
    return min(file.bytes, len(regions) * _BYTES_PER_KEY) if is_keys else file.bytes


_REQUESTS_AT_ONCE_fetch = 4
_FILES_AT_ONCE = 64
# Merges in passes, other processes and the output want some of the disk too.
_DISK_SHARE = 4


@contextlib.contextmanager
def fetched(
    root: DataRoot, schema: Schema, wanted: Wanted, folder: Path
) -> Iterator[Mapping[str, Extract]]:
    """By data file, local files in the folder with every row of its regions (None for all rows).

    None of local files, nor if they might take more than a quarter of the disk's free space:
    then the engine reads S3 itself. They are gone at the end. Whether fetched or not, all files
    are held against their checksums first: StateMovedOnError if a file is gone, DataError that
    names it if it is torn or damaged.
    """
    with contextlib.ExitStack() as cleanup:
        extracts: Mapping[str, Extract] = {}
        if root.buckets:
            extracts = _fetched(root, schema, wanted, folder, cleanup)
        for file, _ in wanted:
            if file.path not in extracts or not extracts[file.path].is_verified:
                verify_bytes(root, file.path)
        yield extracts


def _fetched(
    root: DataRoot, schema: Schema, wanted: Wanted, folder: Path, cleanup: contextlib.ExitStack
) -> Mapping[str, Extract]:
    made: dict[str, Extract] = {}
    room = shutil.disk_usage(folder).free // _DISK_SHARE
    with (
        contextlib.ExitStack() as cancelled,
        ThreadPoolExecutor(_REQUESTS_AT_ONCE_fetch, "s3-files") as threads,
    ):
        for start in range(0, len(wanted), _FILES_AT_ONCE):
            some = wanted[start : start + _FILES_AT_ONCE]
            files = list(threads.map(lambda each: _chosen(root, schema, *each), some))
            room -= sum(end.bytes_of(groups) + len(end.index) for _, end, groups in files)
            if room < 0:
                logger.info("the engine reads S3 itself: the inputs would fill the disk")
                return {}
            try:
                made |= make_extracts(root, files, folder, threads, cancelled)
            except OSError as error:
                logger.warning("the engine reads S3 itself, the disk refuses: %s", error)
                return {}
        cleanup.enter_context(cancelled.pop_all())
    return made


def _chosen(
    root: DataRoot, schema: Schema, file: DataFile, regions: Sequence[Region] | None
) -> tuple[DataFile, FileEnd, Sequence[int]]:
    end = read_file_end(root, schema, file, verify=True)
    every = range(len(end.places))
    return file, end, every if regions is None else row_groups_holding(end, regions)
