"""Files on local disk that hold some row groups of files on S3, where these have them."""

import contextlib
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import obstore

from sleeper.datafiles.file_end import FileEnd, read_range
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.parquet_footer import MAGIC
from sleeper.files.data_file import DataFile

_REQUEST_BYTES_MAX = 16 * 1024**2
# Another request takes longer than so many bytes.
_GAP_BYTES_MAX = 1024**2


@dataclass(frozen=True, slots=True)
class Extract:
    """A local file that has every row of a data file's regions, and how many bytes it took."""

    path: Path
    bytes: int


def make_extracts(
    root: DataRoot,
    files: Sequence[tuple[DataFile, FileEnd, Sequence[int]]],
    folder: Path,
    threads: ThreadPoolExecutor,
    cleanup: contextlib.ExitStack,
) -> dict[str, Extract]:
    """An extract of each file with the chosen row groups; `cleanup` deletes them.

    StateMovedOnError if a file is gone, DataError if it is torn, OSError if the disk refuses.
    """
    made: dict[str, Extract] = {}
    requests: list[tuple[int, str, int, int]] = []
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
            requests += [(descriptor, file.path, *each) for each in ranges]
            made[file.path] = Extract(path, sum(e - s for s, e in ranges))
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


def _fetch(root: DataRoot, descriptor: int, path: str, start: int, end: int) -> None:
    _put(descriptor, read_range(root, path, start, end), start)


def _put(descriptor: int, content: bytes | obstore.Bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
