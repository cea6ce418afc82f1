"""Where the rows of a query go: standard output, or a file that is whole or not there."""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Self

import typer

from sleeper.datafiles.disk import sync_folder
from sleeper.errors import UnavailableError, reason_of


class RowFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"

    @classmethod
    def of(cls, chosen: Self | None, file: Path | None) -> Self:
        """The one chosen, or what the file's name says, or a table."""
        if chosen is not None:
            return chosen
        ending = file.suffix.lower() if file is not None else ""
        return cls({".csv": "csv", ".parquet": "parquet", **_JSON_ENDINGS}.get(ending, "table"))


_JSON_ENDINGS = {".json": "json", ".jsonl": "json", ".ndjson": "json"}


@contextmanager
def row_sink(row_format: RowFormat, file: Path | None) -> Iterator[BinaryIO]:
    """What to write to. A file appears under its name when all rows are in it."""
    if file is None:
        if row_format is RowFormat.PARQUET and sys.stdout.isatty():
            raise typer.BadParameter("parquet is not for a terminal: give --output FILE, or a pipe")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif file.exists() and not file.is_file():  # a pipe or a device
        with file.open("wb") as sink:
            yield sink
    else:
        part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with _opened(part, file) as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(part, file)
            sync_folder(file.parent)
        except OSError as error:
            raise UnavailableError(f"cannot write {file}: {reason_of(error)}") from error
        finally:
            part.unlink(missing_ok=True)


def _opened(part: Path, file: Path) -> BinaryIO:
    try:
        return part.open("wb")
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {reason_of(error)}") from error
