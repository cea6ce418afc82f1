"""Blocks of lines of gzip files, of one member or several, read by ranges.

A range whose connection is lost is requested again, so a read resumes where it was.
"""

from collections.abc import Iterator

from isal import isal_zlib

from sleeper.errors import DataError, NotFoundError
from sleeper.stash.files import ResumingFile, StashFiles

_RANGE_BYTES = 4 * 1024**2
_GZIP_WINDOW_BITS = 31
_PADDING = b"\0"
_LINE_END = b"\n"


def read_blocks(root: StashFiles, path: str) -> Iterator[bytes]:
    """Yields the lines of a file, in blocks of whole lines of a few megabytes.

    NotFoundError if the file does not exist, DataError if it is damaged.
    """
    rest = b""
    for content in _decompress(root, path):
        end = content.rfind(b"\n") + 1
        if end:
            # One copy, of megabytes.
            yield b"".join((rest, memoryview(content)[:end]))
            rest = content[end:]
        else:
            rest += content
    if rest:
        yield rest


def count_lines(root: StashFiles, path: str) -> int:
    """Returns the number of lines of a file. Errors as of `read_blocks`."""
    count, end = 0, _LINE_END
    for block in read_blocks(root, path):
        count += block.count(_LINE_END)
        end = block[-1:]
    return count + (end != _LINE_END)


def _decompress(root: StashFiles, path: str) -> Iterator[bytes]:
    member = None
    for compressed in _ranges(root, path):
        while compressed:
            if member is None:
                compressed = compressed.lstrip(_PADDING)
                if not compressed:
                    break
                member = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
            try:
                content = member.decompress(compressed, _RANGE_BYTES)
            except isal_zlib.error as error:  # type: ignore[misc] # a class, typed as an object
                raise DataError(f"{root.url_of(path)} is damaged: {error}") from error
            if content:
                yield content
            compressed = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member = None
            elif not content and not compressed:
                break
    if member is not None:
        raise DataError(f"{root.url_of(path)} is damaged: its end is missing")


def _ranges(root: StashFiles, path: str) -> Iterator[bytes]:
    try:
        with ResumingFile(root.open_ranges(path)) as file:
            while content := file.read(_RANGE_BYTES):
                yield content
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{root.url_of(path)} does not exist (was its stash deleted?)"
        ) from error
