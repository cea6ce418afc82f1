"""The files of a destination: the port of folders, buckets and other file systems."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from sleeper.errors import UnavailableError
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
