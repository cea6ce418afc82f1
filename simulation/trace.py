"""The history of a run: a line for each call, fault and message.

The folder of a history differs between runs and machines, so the lines have `~` in its stead.
"""

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

_LINES_KEPT = 400
_CHARACTERS_MAX = 300


class Trace:
    """Keeps the last lines, writes all to a file if given, and hashes them all."""

    def __init__(self, file: Path | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.count = 0
        self.folder = ""
        self._hash = hashlib.sha256()
        self._file = None if file is None else file.open("w")

    def add(self, now: float, who: str, what: str) -> None:
        """Adds a line: virtual time, thread, and what it did."""
        line = f"{now:15.6f} {who:24} {self.without_folder(what)[:_CHARACTERS_MAX]}"
        self.count += 1
        self.lines.append(line)
        self._hash.update(line.encode())
        if self._file is not None:
            print(line, file=self._file, flush=True)

    def without_folder(self, text: str) -> str:
        """Returns a text with the same paths in every run."""
        if not self.folder:
            return text
        return text.replace(self.folder, "~").replace(f"process {os.getpid()}", "process 1")

    @property
    def fingerprint(self) -> str:
        """A hash of all lines."""
        return self._hash.hexdigest()[:16]


class TraceHandler(logging.Handler):
    """Adds log lines of the product to the history, and reports the errors that they have."""

    def __init__(self, add: Callable[[str], None], report: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._add, self._report = add, report

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a line."""
        self._add(f"log {record.levelname.lower()} {record.name}: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._report(error)
