"""Rows that do not fit, which are set aside."""

import contextlib
import errno
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.storage.disk import sync_folder

# Errors of fsync for pipes and terminals.
_NO_DISK = (errno.EINVAL, errno.ENOTSUP)


@dataclass(slots=True)
class Rejects:
    """Writes rows that do not fit as JSON lines: file, row, reason, and the row if known.

    A run truncates the output when it begins. A job that was done before does not. More than
    `rows_max` rows refuse the job. `first_fault` is the place and reason of the first row.
    """

    sink: IO[str]
    rows_max: int | None = None
    count: int = 0
    first_fault: str = ""

    def begin(self) -> None:
        """Discards the rows of an earlier try."""
        self.count, self.first_fault = 0, ""
        if self.sink.seekable():
            self.sink.seek(0)
            self.sink.truncate()

    def keep(self) -> None:
        """Makes the rows durable. Call it before the commit of the other rows."""
        try:
            self.sink.flush()
            with contextlib.suppress(io.UnsupportedOperation):
                os.fsync(self.sink.fileno())
                if isinstance(self.sink.name, str):
                    sync_folder(Path(self.sink.name).parent)
        except OSError as error:
            if error.errno not in _NO_DISK:
                raise UnavailableError(f"cannot write rejected rows: {error}") from error

    def check_some_fit(self, rows: int) -> None:
        """Raises InvalidRequestError if all rows of a job were rejected: it would add nothing."""
        if self.count and not rows:
            raise InvalidRequestError(
                f"no row fits the table: {self.count:,} rejected; the first: {self.first_fault}"
            )

    def add(self, file: str, row: int, reason: str, content: Any) -> None:
        """Writes a row. InvalidRequestError if it is one too many."""
        if not self.count:
            self.first_fault = f"file {file}, row {row}: {reason}"
        if self.rows_max is not None and self.count >= self.rows_max:
            raise InvalidRequestError(
                f"too many rejected rows (expected at most {self.rows_max:,}); "
                f"the first: {self.first_fault}"
            )
        line = {"file": file, "row": row, "reason": reason, "content": content}
        self.sink.write(json.dumps(line, default=str, ensure_ascii=False) + "\n")
        self.count += 1
