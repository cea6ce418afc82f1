"""Files on local disk that hold some row groups of files on S3, where these have them."""

import contextlib
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from sleeper.datafiles.engine.parquet_footer import MAGIC
from sleeper.datafiles.remote.file_end import FileEnd, read_range
from sleeper.datafiles.sidecars.checksum import digest_of
from sleeper.datafiles.sidecars.file_check import damaged_bytes
from sleeper.files.data_file import DataFile
from sleeper.storage.location import DataRoot

_REQUEST_BYTES_MAX = 16 * 1024**2
# Another request takes longer than so many bytes.
_GAP_BYTES_MAX = 1024**2

_Digest = tuple[int, int, str]
"""Bytes of a file from and to, and their digest."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A local file that has every row of a data file's regions, and how many bytes it took.

    `is_verified` says that these were held against the data file's checksum.
    """

    path: Path
    bytes: int
    is_verified: bool = False


def make_extracts(
    root: DataRoot,
    files: Sequence[tuple[DataFile, FileEnd, Sequence[int]]],
    folder: Path,
    threads: ThreadPoolExecutor,
    cleanup: contextlib.ExitStack,
) -> dict[str, Extract]:
    """An extract of each file with the chosen row groups; `cleanup` deletes them.

    Row groups are held against the digests of their file's end, if it has any.
    StateMovedOnError if a file is gone, DataError if it is torn or damaged, OSError if the disk
    refuses.
    """
    made: dict[str, Extract] = {}
    requests: list[tuple[int, str, int, int, Sequence[_Digest]]] = []
    with contextlib.ExitStack() as descriptors:
        for file, end, chosen in files:
            path = folder / f"extract-{uuid.uuid4().hex}.parquet"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            cleanup.callback(path.unlink, missing_ok=True)
            descriptors.callback(os.close, descriptor)
            _put(descriptor, MAGIC, 0)
            _put(descriptor, end.index, end.index_at)
            rows = sum(end.rows[i] for i in chosen)
            _put(descriptor, end.footer.with_row_groups(chosen, rows), end.size)
            ranges = _requests([end.places[i] for i in chosen])
            digests = [(*end.places[i], end.digests[i]) for i in chosen] if end.digests else []
            requests += [(descriptor, file.path, *each, digests) for each in ranges]
            made[file.path] = Extract(path, sum(e - s for s, e in ranges), end.digests is not None)
        fetches = [threads.submit(_fetch, root, *each) for each in requests]
        try:
            for fetch in fetches:
                fetch.result()
        finally:
            # None may write to a descriptor that is closed by then, and another file's.
            for fetch in fetches:
                fetch.cancel()
            wait(fetches)
    return made


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
        # No row group is cut by a request.
        if start <= low < end and digest_of(content[low - start : high - start]) != digest:
            raise damaged_bytes(path, low, high)
    _put(descriptor, content, start)


def _put(descriptor: int, content: bytes | memoryview, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
