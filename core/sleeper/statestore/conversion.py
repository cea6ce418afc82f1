"""The conversion of a state's file from an older format, with a copy of it beside the file.

A version of Sleeper cannot read newer formats, so the copy is the way back to an older version.
"""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from sleeper.errors import UnavailableError
from sleeper.statestore.database import Database, create_file
from sleeper.statestore.fold_tables import FOLD_FORMAT_VERSION, create_tables, older_format
from sleeper.storage.disk import delete_durably, replacing_file

logger = logging.getLogger(__name__)


def convert_state(database: Database) -> None:
    """Copies a state of an older format durably, and converts it, in one transaction."""
    with database.writing() as connection:
        version = older_format(connection)
        if version is None:
            return
        target = copy_path(database.path, version)
        _copy(database.path, target)
        create_tables(connection)
    logger.info(
        "converted %s from format %d to %d, copy: %s",
        database.path,
        version,
        FOLD_FORMAT_VERSION,
        target.name,
    )


def copy_path(path: Path, version: int) -> Path:
    """Returns the path of the copy of a state in an older format."""
    return path.with_name(f"{path.name}.format-{version}")


def delete_copies(path: Path) -> None:
    """Deletes the copies of a state, durably."""
    try:
        delete_durably(path.parent.glob(f"{path.name}.format-*"))
    except OSError as error:
        raise UnavailableError(f"cannot delete copies of {path}: {error.strerror}") from error


def _copy(path: Path, target: Path) -> None:
    """Copies the last commit of a database that this process has locked for a write."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        create_file(unfinished)
        with (
            replacing_file(target, unfinished),
            closing(sqlite3.connect(path)) as source,
            closing(sqlite3.connect(unfinished)) as copy,
        ):
            source.backup(copy)
    except OSError as error:
        raise UnavailableError(f"cannot write {target}: {error.strerror}") from error
