"""Pages as bytes: their headers, and pages compressed by zstd as uncompressed ones."""

import threading
from array import array
from collections.abc import Sequence
from typing import Any

import zstandard

from sleeper.datafiles.engine.thrift import read_varint
from sleeper.datafiles.pages.file_pages import UnknownLayoutError

PAGES_BYTES_MAX = 64 * 1024**2
"""The most bytes of pages of a file in memory, which exceed the mean if values differ in size."""
StoredPage = tuple[bytes, int, int]
"""A page as it is in the file: bytes, the page's place in them, and its size with its header."""

_INT32_FIELD = 0x15
# The first field is the type: a data page of version 1, or a dictionary.
_SIMPLE_TYPES = (0, 4)
# One call for many pages releases the interpreter's lock once.
_BATCH_MIN = 4
_threads = threading.local()


def check_size(size: int) -> None:
    """Raises UnknownLayoutError if pages have too many bytes."""
    if size > PAGES_BYTES_MAX:
        raise UnknownLayoutError(f"pages have {size} bytes (expected at most {PAGES_BYTES_MAX})")


def count_values(page: StoredPage) -> int:
    """Returns the number of values of a data page."""
    data, at, _ = page
    _, after = read_varint(data, at + 3)
    _, after = read_varint(data, after + 1)
    if data[after] == _INT32_FIELD:
        _, after = read_varint(data, after + 1)
    if data[after + 1] != _INT32_FIELD:
        raise UnknownLayoutError("a page header has an unknown layout")
    return read_varint(data, after + 2)[0] >> 1


def open_pages(pages: Sequence[StoredPage]) -> list[Any] | None:
    """Returns header and content of each page, one after another, decompressed from zstd.

    None if a page is compressed in part only. UnknownLayoutError if one is damaged.
    """
    headers: list[bytes] = []
    frames: list[memoryview] = []
    sizes = array("Q")
    for data, at, size in pages:
        if data[at] != _INT32_FIELD or data[at + 2] != _INT32_FIELD:
            raise UnknownLayoutError("a page header has an unknown layout")
        if data[at + 1] not in _SIMPLE_TYPES:
            return None
        uncompressed, second = read_varint(data, at + 3)
        compressed, after = read_varint(data, second + 1)
        end = at + size - (compressed >> 1)
        if data[second] != _INT32_FIELD or end <= after:
            raise UnknownLayoutError("a page header has an unknown layout")
        # The compressed size becomes the uncompressed one.
        headers.append(data[at : second + 1] + data[at + 3 : second] + data[after:end])
        frames.append(memoryview(data)[end : at + size])
        sizes.append(uncompressed >> 1)
    check_size(sum(sizes))
    opened: list[Any] = [None] * (2 * len(headers))
    opened[::2] = headers
    opened[1::2] = _decompress(frames, sizes)
    return opened


def _decompress(frames: Sequence[memoryview], sizes: "array[int]") -> list[Any]:
    # A context is not safe for threads, and to allocate one takes longer than to use it.
    if not hasattr(_threads, "zstd"):
        _threads.zstd = zstandard.ZstdDecompressor()
    context = _threads.zstd
    try:
        if len(frames) < _BATCH_MIN or not hasattr(context, "multi_decompress_to_buffer"):
            matches = [
                context.decompress(frame, max_output_size=size)
                for frame, size in zip(frames, sizes, strict=True)
            ]
        else:
            segments = context.multi_decompress_to_buffer(list(frames), sizes, threads=1)
            matches = [segments[i] for i in range(len(segments))]
    except (zstandard.ZstdError, ValueError) as error:
        raise UnknownLayoutError(f"a page cannot be decompressed: {error}") from error
    if any(len(each) != size for each, size in zip(matches, sizes, strict=True)):
        raise UnknownLayoutError("a page has another size than its header says")
    return matches
