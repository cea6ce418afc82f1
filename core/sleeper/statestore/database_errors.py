"""SQLite's errors as those of Sleeper."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sleeper.errors import DataError, InvalidRequestError, SleeperError, UnavailableError
from sleeper.storage.disk import describe_full_disk, free_bytes

_FULL_BYTES = 65_536
_PRIMARY_CODE = 0xFF
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_read_only(error: sqlite3.OperationalError) -> bool:
    """Returns whether a write failed because the file was read-only when it was opened.

    The connection stays read-only when the file becomes writable.
    """
    return error.sqlite_errorname.startswith("SQLITE_READONLY")


def explained(path: Path, error: sqlite3.OperationalError) -> str:
    """Returns the path and SQLite's message, or a clearer one of a read-only or full disk."""
    if is_read_only(error):
        return f"{path}: cannot be written: the file or its folder is read-only"
    if _is_full(path, error):
        return f"cannot write {path}: {describe_full_disk(path)}"
    return f"{path}: {error}"


def _is_full(path: Path, error: sqlite3.OperationalError) -> bool:
    # The files beside the database fail with other errors on a full disk.
    name = error.sqlite_errorname
    has_failed = name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))
    return name == "SQLITE_FULL" or (has_failed and free_bytes(path) < _FULL_BYTES)


def damage_error(path: Path, error: sqlite3.Error) -> SleeperError:
    """Returns a DataError, or an UnavailableError if the file is intact when it is read again.

    SQLite reports damage also if the disk returned other bytes once, and keeps these in the memory
    of the connection.
    """
    if getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE not in _DAMAGE_CODES:
        return DataError(f"{path}: {error}")
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            ((result,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.OperationalError as again:
        return UnavailableError(f"{path}: {error}, and then {again}")
    except sqlite3.Error:
        return DataError(f"{path}: {error}")
    if result != "ok":
        return DataError(f"{path}: {error}: {result}")
    return UnavailableError(f"{path}: the disk returned damaged content once ({error})")


@contextmanager
def translated_errors(path: Path, close: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Converts SQLite's errors: a busy or full disk is unavailable, damage is a data error.

    Text that is not Unicode, such as of an argument with other bytes, is an invalid request.
    `close` closes connections that read damaged content.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UnavailableError(explained(path, error)) from error
    except sqlite3.Error as error:
        close()
        raise damage_error(path, error) from error
    except MemoryError as error:
        raise UnavailableError(f"{path}: out of memory") from error
    except UnicodeEncodeError as error:
        raise not_unicode_error(error) from error


def not_unicode_error(error: UnicodeEncodeError) -> InvalidRequestError:
    """Returns the error of a value that SQLite cannot store."""
    return InvalidRequestError(f"{error.object[:200]!r} is not Unicode text")
