"""Reads of byte ranges of data files on S3, in few requests."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sleeper.datafiles.remote.file_end import read_range
from sleeper.storage.location import DataRoot

_REQUEST_BYTES_MAX = 16 * 1024**2
# A single request of this size needs no thread of those that limit the bytes of all requests.
_SMALL_BYTES_MAX = 1024**2
# Reading a gap of this size is faster than another request.
_GAP_BYTES_MAX = 1024**2

MapRanges = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function for each value, perhaps in parallel."""

Spans = list[tuple[int, int]]
"""Starts and ends of bytes of a file, ascending."""


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

    def fetch(self, requests: Sequence[Spans]) -> Iterable[tuple[Spans, list[bytes]]]:
        """Yields the spans of each request with their bytes. Errors as of `read`."""
        if len(requests) == 1 and requests[0][-1][1] - requests[0][0][0] <= _SMALL_BYTES_MAX:
            return [self._fetch(requests[0])]
        return self._map(self._fetch, requests)

    def _fetch(self, spans: Spans) -> tuple[Spans, list[bytes]]:
        start, end = spans[0][0], spans[-1][1]
        content = memoryview(read_range(self._root, self._path, start, end))
        return spans, [bytes(content[low - start : high - start]) for low, high in spans]

    def _request(self, within: tuple[int, int]) -> bytes:
        return bytes(read_range(self._root, self._path, *within))


class FetchedPages:
    """Pages of a file in memory, without the gaps between them that requests read."""

    gap_bytes_max = 0

    def __init__(self, source: RemoteFile, pages: Sequence[tuple[int, int]]) -> None:
        """Fetches pages of these offsets and sizes."""
        self._starts: list[int] = []
        self._contents: list[bytes] = []
        for spans, contents in source.fetch(_requests(pages, source.gap_bytes_max)):
            self._starts += [start for start, _ in spans]
            self._contents += contents

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes between each start and end, which are those of adjacent pages."""
        return [self._bytes(start, end) for start, end in ranges]

    def _bytes(self, start: int, end: int) -> bytes:
        position = bisect_right(self._starts, start) - 1
        at = start - self._starts[position]
        content = self._contents[position][at : at + end - start]
        while len(content) < end - start:
            # Adjacent pages may be of several requests.
            position += 1
            content += self._contents[position][: end - start - len(content)]
        return content


def _requests(pages: Sequence[tuple[int, int]], gap_bytes_max: int) -> list[Spans]:
    """Returns spans of adjacent pages of these offsets and sizes, in the requests that read them.

    A request has gaps of a limited size between its spans. It exceeds the maximum size only for a
    single page.
    """
    requests: list[Spans] = []
    for at, size in sorted(pages):
        spans = requests[-1] if requests else [(at, at)]
        first, end = spans[0][0], spans[-1][1]
        is_far = at - end > gap_bytes_max or at + size - first > _REQUEST_BYTES_MAX
        if not requests or is_far:
            requests.append([(at, at + size)])
        elif at <= end:
            spans[-1] = (spans[-1][0], max(end, at + size))
        else:
            spans.append((at, at + size))
    return requests
