"""Reads of byte ranges of local data files."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sleeper.errors import DataError, StateMovedOnError, UnavailableError


class LocalFile:
    """An open file. Reading a few pages is faster than another call of the system."""

    gap_bytes_max = 4096

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def size(self) -> int:
        """The file's bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Returns the bytes between each start and end. DataError if the file lacks them."""
        size = self.size
        for start, end in ranges:
            if not 0 <= start <= end <= size:
                raise DataError(f"data file {self._path} of {size} bytes has no {start} to {end}")
        try:
            parts = [os.pread(self._descriptor, end - start, start) for start, end in ranges]
        except OSError as error:
            raise UnavailableError(f"cannot read {self._path}: {error.strerror}") from error
        for part, (start, end) in zip(parts, ranges, strict=True):
            if len(part) != end - start:
                raise DataError(f"data file {self._path} has fewer than {end} bytes")
        return parts


@contextmanager
def open_local(path: str) -> Iterator[LocalFile]:
    """Opens a file. StateMovedOnError if it is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is missing: {path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}") from error
    try:
        yield LocalFile(descriptor, path)
    finally:
        os.close(descriptor)
