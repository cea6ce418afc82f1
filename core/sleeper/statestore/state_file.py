"""The file of a table's state at one version, apart from its log (`StateStore.copy_version`)."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import DataError
from sleeper.statestore.database_errors import translated_errors
from sleeper.statestore.fold_tables import create_tables, path_hash
from sleeper.statestore.rows import sidecars_from_column

# The tables of files, whose paths begin with the id of the table that owns the objects.
_FILE_TABLES = ("files", "key_files")


@dataclass(frozen=True, slots=True)
class StateObject:
    """A data file or a key file of the state, with the suffixes of the objects beside it."""

    path: str
    bytes: int
    sidecars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateContent:
    """The version of a state, its data files and their rows."""

    number: int
    time_ms: int
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of a state that no other process has open."""

    path: Path

    def upgrade(self) -> None:
        """Converts a file of an older version. DataError if a newer version wrote it."""
        with translated_errors(self.path), closing(self._connect()) as connection:
            connection.execute("BEGIN")
            create_tables(connection)
            connection.execute("COMMIT")

    def content(self) -> StateContent:
        """Returns the totals of the state. DataError if the table was not initialised."""
        with translated_errors(self.path), closing(self._connect()) as connection:
            number, time_ms, dimensions = connection.execute(
                "SELECT number, time, dimensions FROM position"
            ).fetchone()
            if not dimensions:
                raise DataError(f"{self.path}: the table has no state")
            files, rows = connection.execute(
                "SELECT count(*), coalesce(sum(rows), 0) FROM files"
            ).fetchone()
        return StateContent(number, time_ms, files, rows)

    def objects(self) -> Iterator[StateObject]:
        """Yields all data files and key files, in a fixed order."""
        with translated_errors(self.path), closing(self._connect()) as connection:
            for table in _FILE_TABLES:
                rows = connection.execute(f"SELECT path, bytes, sidecars FROM {table} ORDER BY key")
                for path, size, sidecars in rows:
                    yield StateObject(path, size, sidecars_from_column(sidecars))

    def owners(self) -> list[str]:
        """Returns the ids of the tables whose objects the state names."""
        owners: set[str] = set()
        with translated_errors(self.path), closing(self._connect()) as connection:
            for table in _FILE_TABLES:
                sql = f"SELECT DISTINCT substr(path, 1, instr(path, '/') - 1) FROM {table}"
                owners |= {owner for (owner,) in connection.execute(sql)}
        return sorted(owners)

    def own_objects(self, table_id: str) -> None:
        """Moves all paths below the table's own folder, as `own_path` does."""
        with translated_errors(self.path), closing(self._connect()) as connection:
            connection.create_function("own_path", 2, own_path, deterministic=True)
            connection.create_function("path_hash", 1, path_hash, deterministic=True)
            connection.execute("BEGIN")
            for table in _FILE_TABLES:
                connection.execute(
                    f"UPDATE {table} SET path = own_path(:id, path),"
                    " path_hash = path_hash(own_path(:id, path))"
                    " WHERE substr(path, 1, length(:id) + 1) <> :id || '/'",
                    {"id": table_id},
                )
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)


def own_path(table_id: str, path: str) -> str:
    """Returns the path of an object that another table owns, in the table's own folder.

    Names of files are unique, so objects of several owners do not meet there.
    """
    return f"{table_id}/{path.partition('/')[2]}"
