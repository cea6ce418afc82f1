"""The data of a local instance that was opened read-only."""

from pathlib import Path
from typing import Any

from obstore.store import LocalStore

from sleeper.errors import read_only_error
from sleeper.storage.location import DataRoot


class ReadOnlyRoot(DataRoot):
    """A folder, which may be missing, whose objects cannot be changed: InvalidRequestError."""

    def __init__(self, folder: Path) -> None:
        self._location = folder
        self._folder = str(folder)
        # A missing folder has no objects that the store could be asked for.
        self.store = LocalStore(folder) if folder.exists() else LocalStore()

    def __reduce__(self) -> tuple[type[DataRoot], tuple[Any]]:
        """See the base class."""
        return ReadOnlyRoot, (self._location,)

    def check_writable(self) -> None:
        """See the base class."""
        raise read_only_error(self._folder)

    def sink(self, path: str, syncs: bool = True) -> Any:  # noqa: ARG002
        """See the base class."""
        raise read_only_error(self.url_of(path))

    def local_target(self, path: str, folder: Path) -> Any:  # noqa: ARG002
        """See the base class."""
        raise read_only_error(self.url_of(path))

    def replacing(self, path: str) -> Any:
        """See the base class."""
        raise read_only_error(self.url_of(path))

    def create(self, path: str, content: bytes) -> bool:  # noqa: ARG002
        """See the base class."""
        raise read_only_error(self.url_of(path))

    def put(self, path: str, content: bytes) -> None:  # noqa: ARG002
        """See the base class."""
        raise read_only_error(self.url_of(path))

    def delete(self, paths: list[str]) -> None:
        """See the base class."""
        if paths:
            raise read_only_error(self._folder)

    def remove_empty_folders(self, folder: str) -> None:
        """See the base class."""
        raise read_only_error(self.url_of(folder))
