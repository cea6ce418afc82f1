"""Reads of byte ranges of data files on S3, in few requests."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sleeper.datafiles.pages.read import join_places
from sleeper.datafiles.remote.file_end import read_range
from sleeper.storage.location import DataRoot

_REQUEST_BYTES_MAX = 16 * 1024**2
# Reading a gap of this size is faster than another request.
_GAP_BYTES_MAX = 1024**2

MapRanges = Callable[[Callable[[tuple[int, int]], bytes], Sequence[tuple[int, int]]], Iterable[Any]]
"""Calls a function for each range, perhaps in parallel."""


class RemoteFile:
    """A data file on S3 of `size` bytes."""

    gap_bytes_max = _GAP_BYTES_MAX

    def __init__(self, root: DataRoot, path: str, size: int, map_ranges: MapRanges) -> None:
        self._root = root
        self._path = path
        self._map = map_ranges
        self.size = size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes between each start and end, in parallel requests.

        StateMovedOnError if the file is gone, DataError if it is shorter.
        """
        requests = [
            (at, min(at + _REQUEST_BYTES_MAX, end))
            for start, end in ranges
            for at in range(start, end, _REQUEST_BYTES_MAX)
        ]
        if len(requests) == 1:
            return [self._request(requests[0])]
        parts = iter(self._map(self._request, requests))
        return [
            b"".join(next(parts) for _ in range(start, end, _REQUEST_BYTES_MAX))
            for start, end in ranges
        ]

    def _request(self, within: tuple[int, int]) -> bytes:
        return bytes(read_range(self._root, self._path, *within))


class FetchedRuns:
    """Runs of bytes of a file in memory."""

    gap_bytes_max = 0

    def __init__(self, source: RemoteFile, pages: Sequence[tuple[int, int]]) -> None:
        """Fetches pages of these offsets and sizes."""
        runs = join_places(pages, source.gap_bytes_max)
        self._starts = [start for start, _ in runs]
        self._contents = source.read(runs)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes between each start and end."""
        return [self._bytes(start, end) for start, end in ranges]

    def _bytes(self, start: int, end: int) -> bytes:
        run = bisect_right(self._starts, start) - 1
        before = self._starts[run]
        return self._contents[run][start - before : end - before]
