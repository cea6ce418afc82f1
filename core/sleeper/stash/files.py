"""The files of a destination: the port of folders, buckets and other file systems."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.files import StoredObject
from sleeper.retries import Backoff, retry


class StashFiles(Protocol):
    """Files by paths relative to a destination. Errors are those of `sleeper.errors`.

    `DataRoot` has folders and buckets, `FileSystemRoot` all other file systems.
    """

    def url_of(self, path: str) -> str:
        """Returns the path or URL of a file."""
        ...

    def list_folders(self, folder: str) -> list[str]:
        """Returns the names of the folders in a folder, in no order; none if it does not exist."""
        ...

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        """Yields all files below a folder, in no order."""
        ...

    def read(self, path: str) -> bytes:
        """Returns the content of a small file. NotFoundError if it does not exist."""
        ...

    def open_ranges(self, path: str) -> io.RawIOBase:
        """Opens a file for reads of ranges. A read that failed can be repeated.

        FileNotFoundError, now or at a read, if it does not exist.
        """
        ...

    def replacing(self, path: str) -> AbstractContextManager[Any]:
        """Returns a context with a binary file, which replaces the file whole or not at all."""
        ...

    def delete(self, paths: list[str]) -> None:
        """Deletes files, durably. Missing files are no error."""
        ...

    def remove_empty_folders(self, folder: str) -> None:
        """Removes a folder and those below it, if they are empty. Buckets have none."""
        ...


class ResumingFile(io.RawIOBase):
    """A file of `StashFiles.open_ranges`. A read gets fewer bytes only at the end of the file."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._backoff = Backoff.for_requests(0.1, 5)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        left = size
        while size < 0 or left:
            read = partial(self._file.read, left)
            part = retry(read, on=UnavailableError, backoff=self._backoff)
            if not part:
                break
            parts.append(part)
            left -= len(part) if size >= 0 else 0
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()
        super().close()


_READ_AHEAD_BYTES = 4 * 1024**2


def open_stored(
    root: StashFiles, path: str, offset: int = 0, length: int | None = None
) -> io.BufferedReader:
    """Opens a file, or a range of it, for a sequential read of its bytes as they are stored.

    A read that loses its connection resumes where it was. NotFoundError, now or at the first read,
    if the file does not exist; InvalidRequestError if the range is negative.
    """
    if offset < 0 or (length or 0) < 0:
        raise InvalidRequestError(
            f"offset {offset:,} and length {length} of a range (expected none below 0)"
        )
    url = root.url_of(path)
    try:
        file = ResumingFile(root.open_ranges(path))
        file.seek(offset)
    except FileNotFoundError as error:
        raise _missing(url) from error
    return io.BufferedReader(_StoredRange(file, url, length), _READ_AHEAD_BYTES)


class _StoredRange(io.RawIOBase):
    """The next `length` bytes of a file, or all that follow, in sequence."""

    def __init__(self, file: ResumingFile, url: str, length: int | None) -> None:
        self._file = file
        self._url = url
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer) if self._left is None else min(len(buffer), self._left)
        content = self._read(size)
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        # The default reads 8 KiB at a time, which are as many requests to a bucket.
        parts = iter(lambda: self._read(self._next_size()), b"")
        return b"".join(parts)

    def _next_size(self) -> int:
        return _READ_AHEAD_BYTES if self._left is None else min(_READ_AHEAD_BYTES, self._left)

    def _read(self, size: int) -> bytes:
        try:
            content = self._file.read(size)
        except FileNotFoundError as error:
            raise _missing(self._url) from error
        if self._left is not None:
            self._left -= len(content)
        return content

    def close(self) -> None:
        self._file.close()
        super().close()


def _missing(url: str) -> NotFoundError:
    return NotFoundError(f"{url} does not exist (was its stash deleted?)")
