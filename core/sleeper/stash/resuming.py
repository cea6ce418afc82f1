"""Files whose reads are repeated after a lost connection, so that they resume where they were."""

import io
from functools import partial

from sleeper.errors import UnavailableError
from sleeper.retries import Backoff, retry


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
