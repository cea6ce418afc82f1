"""The files of a destination: the port of folders, buckets and other file systems."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sleeper.files import StoredObject


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
