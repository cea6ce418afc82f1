"""Extracts: local copies of the row groups of S3 files that a merge needs.

DataFusion sends several requests per file: for its size, its page index and the pages of each
column. An extract takes one request for the file's end, which is cached, and one for the row
groups that may hold the rows. The row groups keep their offsets, with holes between them, under a
footer that lists no others, so DataFusion reads the extract like any local file.
"""

import contextlib
import logging
import os
import shutil
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from sleeper.datafiles.engine.parquet_footer import MAGIC
from sleeper.datafiles.remote.file_end import FileEnd, read_file_end, read_range, select_row_groups
from sleeper.datafiles.sidecars.checksum import (
    compute_digest,
    damage_error,
    file_errors,
    verify_bytes,
    verify_end,
)
from sleeper.errors import DataError, UnavailableError
from sleeper.files import DataFile
from sleeper.partitions.region import Region, key_of_region
from sleeper.schema.model import Schema
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

# DataFusion reads larger leaves from S3 as a stream.
_EXTRACTED_BYTES_MAX = 256 * 1024**2
_QUERY_REQUEST_THREADS = 8
_LEAVES_AHEAD = 4
# The estimated bytes per key: a row group and the start of the next.
_BYTES_PER_KEY = 2 * 1024**2

_MERGE_REQUEST_THREADS = 4
_FILES_PER_BATCH = 64
# Merge passes, other processes and the output need disk space too.
_DISK_SHARE = 4

_REQUEST_BYTES_MAX = 16 * 1024**2
# Reading a gap of this size is faster than another request.
_GAP_BYTES_MAX = 1024**2

FileRegions = Sequence[tuple[DataFile, Sequence[Region] | None]]
"""Files, each with the regions of its rows to read, None for every row."""
_Digest = tuple[int, int, str]
"""Start and end of bytes of a file, and their digest."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A local file with every row of a data file's regions, and its bytes.

    `is_verified` is true if its bytes match the data file's checksum.
    """

    path: Path
    bytes: int
    is_verified: bool = False


@dataclass(frozen=True, slots=True)
class _LeafExtracts:
    extracts: Mapping[str, Extract]
    cleanup: contextlib.ExitStack


class Extractor:
    """Makes extracts for queries and caches the ends of files. Safe for threads."""

    def __init__(self, folder: Path, end_cache_bytes: int, verify: bool = False) -> None:
        self._folder = folder
        self._verify = verify
        self._ends = BoundedCache[FileEnd](end_cache_bytes, lambda end: end.kept_bytes)
        self._threads = ThreadPoolExecutor(_QUERY_REQUEST_THREADS, "s3-ranges")
        self._leaves = ThreadPoolExecutor(_LEAVES_AHEAD + 1, "s3-extracts")

    def extract_leaves(
        self,
        root: DataRoot,
        schema: Schema,
        leaves: Sequence[FileRegions],
        ahead: int = _LEAVES_AHEAD,
    ) -> Generator[Mapping[str, Extract], None, None]:
        """Yields the extracts of each leaf by data file, and deletes them afterwards.

        Local files, files of which every row is read, and leaves over a size limit have no
        extracts. The extracts of the next leaves are made ahead. StateMovedOnError if a file is
        gone, DataError if it is torn, or damaged and the extractor verifies files.
        """
        if not root.buckets:
            yield from ({} for _ in leaves)
            return
        pending: deque[tuple[Future[_LeafExtracts], int]] = deque()
        left = deque(leaves)

        def begin(count: int) -> None:
            while left and len(pending) < count:
                size = sum(_estimate_bytes(schema, *each) for each in left[0])
                if pending and sum(n for _, n in pending) + size > _EXTRACTED_BYTES_MAX:
                    return
                leaf = left.popleft()
                pending.append((self._leaves.submit(self._extract, root, schema, leaf), size))

        try:
            while left or pending:
                begin(1 + ahead)
                leaf = pending.popleft()[0].result()
                with leaf.cleanup:
                    begin(ahead)
                    yield leaf.extracts
        finally:
            for future, _ in pending:
                if not future.cancel() and future.exception() is None:
                    future.result().cleanup.close()

    def _extract(self, root: DataRoot, schema: Schema, leaf: FileRegions) -> _LeafExtracts:
        partial = [(file, regions) for file, regions in leaf if regions is not None]
        ends = self._threads.map(lambda each: self._read_end(root, schema, each[0]), partial)
        files = [
            (file, end, select_row_groups(end, regions))
            for (file, regions), end in zip(partial, ends, strict=True)
        ]
        with contextlib.ExitStack() as cleanup:
            extracts: dict[str, Extract] = {}
            if sum(end.bytes_of(chosen) for _, end, chosen in files) <= _EXTRACTED_BYTES_MAX:
                try:
                    extracts = make_extracts(root, files, self._folder, self._threads, cleanup)
                except OSError as error:
                    logger.warning("no extracts made, reading from S3: %s", error)
            return _LeafExtracts(extracts, cleanup.pop_all())
        raise AssertionError

    def _read_end(self, root: DataRoot, schema: Schema, file: DataFile) -> FileEnd:
        return self._ends.get(
            root.url_of(file.path), lambda: read_file_end(root, schema, file, self._verify)
        )


def _estimate_bytes(schema: Schema, file: DataFile, regions: Sequence[Region] | None) -> int:
    if regions is None:
        return 0
    is_keys = all(key_of_region(schema, region) is not None for region in regions)
    return min(file.bytes, len(regions) * _BYTES_PER_KEY) if is_keys else file.bytes


@contextlib.contextmanager
def fetch_inputs(
    root: DataRoot, schema: Schema, files: FileRegions, folder: Path
) -> Iterator[Mapping[str, Extract]]:
    """Verifies the files and copies those in S3 to the folder for the duration of a merge.

    Yields the extracts by data file. There are none if the root is local, or if they may need
    more than a quarter of the free disk space. Other files are verified during the merge: their
    ends before it, because damaged footers may abort the process, and the rest when the context
    ends at the latest. So the caller must discard what it wrote if the context raises.
    StateMovedOnError if a file is gone, DataError that names the file if it is torn or damaged.
    """
    with contextlib.ExitStack() as cleanup:
        extracts: Mapping[str, Extract] = {}
        if root.buckets:
            extracts = _fetch_files(root, schema, files, folder, cleanup)
        rest = [
            file.path
            for file, _ in files
            if file.path not in extracts or not extracts[file.path].is_verified
        ]
        with _verifying(root, rest):
            yield extracts


@contextlib.contextmanager
def _verifying(root: DataRoot, paths: Sequence[str]) -> Iterator[None]:
    """Verifies the ends of the files before the context, and the rest in a thread during it.

    If the context fails, a damaged file is the error, because it may be the cause, unless a
    service or the disk failed. Then only the file that is being read is verified.
    """
    late = [path for path in paths if not _is_verified_early(root, path)]
    with ThreadPoolExecutor(1, "verification") as thread:
        pending = [thread.submit(verify_bytes, root, path) for path in late]
        try:
            yield
        except UnavailableError:
            thread.shutdown(wait=False, cancel_futures=True)
            raise
        except Exception as error:
            for each in pending:
                if isinstance(damage := each.exception(), DataError):
                    raise damage from error
            raise
        except BaseException:  # an interrupt waits for one file at most
            thread.shutdown(wait=False, cancel_futures=True)
            raise
        for each in pending:
            each.result()


def _is_verified_early(root: DataRoot, path: str) -> bool:
    """Verifies a file's end, or all of it if its end has no checksum. Returns if it was all."""
    with file_errors(root, path):
        if verify_end(root, path):
            return False
    verify_bytes(root, path)
    return True


def _fetch_files(
    root: DataRoot,
    schema: Schema,
    files: FileRegions,
    folder: Path,
    cleanup: contextlib.ExitStack,
) -> Mapping[str, Extract]:
    extracts: dict[str, Extract] = {}
    room = shutil.disk_usage(folder).free // _DISK_SHARE

    def choose(
        file: DataFile, regions: Sequence[Region] | None
    ) -> tuple[DataFile, FileEnd, Sequence[int]]:
        end = read_file_end(root, schema, file, verify=True)
        every = range(len(end.places))
        return file, end, every if regions is None else select_row_groups(end, regions)

    with (
        contextlib.ExitStack() as unfinished,
        ThreadPoolExecutor(_MERGE_REQUEST_THREADS, "s3-files") as threads,
    ):
        for start in range(0, len(files), _FILES_PER_BATCH):
            batch = files[start : start + _FILES_PER_BATCH]
            chosen = list(threads.map(lambda each: choose(*each), batch))
            room -= sum(end.bytes_of(groups) + len(end.index) for _, end, groups in chosen)
            if room < 0:
                logger.info("inputs not fetched, reading from S3: they would fill the disk")
                return {}
            try:
                extracts |= make_extracts(root, chosen, folder, threads, unfinished)
            except OSError as error:
                logger.warning("inputs not fetched, reading from S3: %s", error)
                return {}
        cleanup.enter_context(unfinished.pop_all())
    return extracts


def make_extracts(
    root: DataRoot,
    files: Sequence[tuple[DataFile, FileEnd, Sequence[int]]],
    folder: Path,
    threads: ThreadPoolExecutor,
    cleanup: contextlib.ExitStack,
) -> dict[str, Extract]:
    """Makes an extract of each file with the chosen row groups. `cleanup` deletes them.

    Row groups are verified against the digests of their file's end, if it has any.
    StateMovedOnError if a file is gone, DataError if it is torn or damaged, OSError if the disk
    fails.
    """
    extracts: dict[str, Extract] = {}
    requests: list[tuple[int, str, int, int, Sequence[_Digest]]] = []
    with contextlib.ExitStack() as descriptors:
        for file, end, chosen in files:
            path = folder / f"extract-{uuid.uuid4().hex}.parquet"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            cleanup.callback(path.unlink, missing_ok=True)
            descriptors.callback(os.close, descriptor)
            _write_at(descriptor, MAGIC, 0)
            _write_at(descriptor, end.index, end.index_at)
            rows = sum(end.rows[i] for i in chosen)
            _write_at(descriptor, end.footer.with_row_groups(chosen, rows), end.size)
            ranges = _plan_requests([end.places[i] for i in chosen])
            digests = [(*end.places[i], end.digests[i]) for i in chosen] if end.digests else []
            requests += [(descriptor, file.path, *each, digests) for each in ranges]
            size = sum(stop - start for start, stop in ranges)
            extracts[file.path] = Extract(path, size, end.digests is not None)
        fetches = [threads.submit(_fetch, root, *each) for each in requests]
        try:
            for fetch in fetches:
                fetch.result()
        finally:
            # The number of a closed descriptor may be reused, so no fetch may outlast it.
            for fetch in fetches:
                fetch.cancel()
            wait(fetches)
    return extracts


def _plan_requests(positions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins ranges of bytes to few requests of limited size."""
    joined: list[tuple[int, int]] = []
    for start, end in positions:
        is_near = joined and start - joined[-1][1] <= _GAP_BYTES_MAX
        if is_near and end - joined[-1][0] <= _REQUEST_BYTES_MAX:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _fetch(
    root: DataRoot,
    descriptor: int,
    path: str,
    start: int,
    end: int,
    digests: Sequence[_Digest],
) -> None:
    content = memoryview(read_range(root, path, start, end))
    for low, high, digest in digests:
        # A request contains whole row groups.
        if start <= low < end and compute_digest(content[low - start : high - start]) != digest:
            raise damage_error(path, low, high)
    _write_at(descriptor, content, start)


def _write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
