"""Files that are replaced as a whole or not at all."""

import os
import secrets
from pathlib import Path

from sleeper.datafiles.disk import sync_folder
from sleeper.errors import DataError, NotFoundError, UnavailableError

TEMPORARY_SUFFIX = ".tmp"


def write_whole(path: Path, text: str) -> None:
    """Writes the file so that after a crash it holds either the old text or the new.

    UnavailableError if the disk does not take it; then the old text stays.
    """
    write_whole_bytes(path, text.encode())


def write_whole_bytes(path: Path, content: bytes) -> None:
    """The same of bytes."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UnavailableError(f"cannot write {path}: {error.strerror}") from error


def read_whole(path: Path) -> str:
    """The file's text.

    NotFoundError if there is none, UnavailableError if it cannot be read, DataError if it is not
    UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error
