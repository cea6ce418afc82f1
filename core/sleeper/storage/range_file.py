"""Read-only files of which each read is a request for a range of bytes."""

import io
from abc import abstractmethod
from typing import Any


class RangeFile(io.RawIOBase):
    """A file of `size` bytes. A subclass reads the ranges."""

    def __init__(self, size: int) -> None:
        self._at, self._size = 0, size

    @abstractmethod
    def read_range(self, start: int, stop: int) -> bytes:
        """Returns the bytes from `start` to `stop`, which is after it and within the file."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._at + size, self._size)
        if self._at >= stop:
            return b""
        content = self.read_range(self._at, stop)
        self._at += len(content)
        return content

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
