"""The folder of a local instance: its paths, property files and wheels."""

import contextlib
import secrets
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    read_only_error,
)
from sleeper.local.database import InstanceDatabase
from sleeper.properties.instance import ID
from sleeper.properties.values import (
    InstanceProperties,
    TableProperties,
    instance_properties,
    instance_properties_from_text,
    table_properties_from_text,
)
from sleeper.storage.disk import (
    delete_durably,
    delete_folder_durably,
    make_folder,
    replacing_file,
    write_error,
)
from sleeper.storage.location import check_path
from sleeper.tables import TableId
from sleeper.user_code.registry import StoredWheel

TEMPORARY_SUFFIX = ".tmp"


def write_whole(path: Path, text: str) -> None:
    """Replaces the file atomically. UnavailableError if the write fails, with the old text kept."""
    write_whole_bytes(path, text.encode())


def write_whole_bytes(path: Path, content: bytes) -> None:
    """Replaces the file atomically, as `write_whole` does."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with replacing_file(path, temporary) as file:
            file.write_bytes(content)
    except OSError as error:
        raise write_error(path, error) from error


def read_whole(path: Path) -> str:
    """Returns the file's text.

    NotFoundError if it does not exist, UnavailableError if it cannot be read, DataError if it is
    not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error


@dataclass(frozen=True, slots=True)
class CodeFolder:
    """Implements `sleeper.user_code.registry.WheelStore` by a folder, which may be missing."""

    folder: Path
    read_only: bool = False

    def list(self) -> list[StoredWheel]:
        """See the port. A tag holds the file's time, size and inode."""
        try:
            files = [(path.name, path.stat()) for path in sorted(self.folder.glob("*.whl"))]
        except OSError as error:
            raise UnavailableError(f"cannot list {self.folder}: {error.strerror}") from error
        return [
            StoredWheel(name, f"{each.st_mtime_ns}-{each.st_size}-{each.st_ino}")
            for name, each in files
            if stat.S_ISREG(each.st_mode)
        ]

    def read(self, file_name: str) -> bytes:
        try:
            return (self.folder / file_name).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.folder / file_name} does not exist") from error
        except OSError as error:
            raise UnavailableError(f"cannot read {file_name}: {error.strerror}") from error

    def write(self, file_name: str, content: bytes) -> None:
        """See the port. After a crash the file is complete or missing."""
        self._check_writable()
        make_folder(self.folder)
        write_whole_bytes(self.folder / file_name, content)

    def delete(self, file_name: str) -> None:
        self._check_writable()
        try:
            (self.folder / file_name).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot delete {file_name}: {error.strerror}") from error

    def _check_writable(self) -> None:
        if self.read_only:
            raise read_only_error(self.folder)


_PROPERTIES_FILE = "instance.properties"
_DATABASE_FILE = "instance.db"
_TABLES_FOLDER = "tables"


@dataclass(frozen=True, slots=True)
class InstanceFolder:
    """An instance in a folder. Paths of data files are relative to the folder."""

    folder: Path
    database: InstanceDatabase

    def properties(self) -> InstanceProperties:
        """Returns the instance's current properties."""
        return instance_properties_from_text(read_whole(self.folder / _PROPERTIES_FILE))

    def set_properties(self, changes: Mapping[str, str]) -> InstanceProperties:
        """Sets values; an empty value unsets its property. The instance's id cannot change."""
        with self.database.write():
            before = self.properties()
            after = before.with_values(changes)
            if after.get(ID) != before.get(ID):
                raise InvalidRequestError(f"property {ID.name} cannot change")
            write_whole(self.folder / _PROPERTIES_FILE, after.to_text())
        return after

    def make_table_folder(self, table_id: TableId) -> None:
        """Creates the folder of the table's state and data."""
        self.database.check_writable()
        make_folder(self.table_folder(table_id) / "data")

    def table_folder(self, table_id: TableId) -> Path:
        """Returns the folder of the table's state and data."""
        return self.folder / check_path(table_id)

    def state_path(self, table_id: TableId) -> Path:
        """Returns the path of the table's log and state."""
        return self.table_folder(table_id) / "state.db"

    def state_paths(self) -> Iterator[Path]:
        """Yields the paths of the logs and states of all listed tables, also of deleted ones."""
        for row in self.database.read("SELECT id FROM tables ORDER BY id"):
            path = self.state_path(row["id"])
            if _has_content(path):
                yield path

    def check_state_exists(self, table_id: TableId) -> None:
        """Raises DataError if the file of a listed table's log and state is missing.

        Opening it would create an empty one. A table in creation is not listed yet.
        """
        path = self.state_path(table_id)
        if _has_content(path):
            return
        if self.database.read("SELECT 1 FROM tables WHERE id = ?", (table_id,)):
            raise DataError(
                f"{path} does not exist or is empty: it held the table's log and state "
                "(restore the folder from a backup)"
            )

    def remove_table_files(self, table_id: TableId) -> None:
        """Deletes the table's files, durably. Missing ones are no error."""
        self.database.check_writable()
        try:
            folder = self.table_folder(table_id)
            # Before the log, which has the pins of its files.
            delete_folder_durably(folder / "data")
            delete_folder_durably(folder)
            delete_durably([self.table_properties_path(table_id)])
        except OSError as error:
            raise UnavailableError(
                f"cannot delete the files of table {table_id}: {error}"
            ) from error

    def unlisted_table_ids(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Returns tables with files but no row in the index, which a failed creation left.

        They were last written before the given time, so a creation in progress is not among them.
        """
        listed = {row["id"] for row in self.database.read("SELECT id FROM tables")}
        files = [
            *self.folder.glob("[0-9a-f]" * 8),
            *(self.folder / _TABLES_FOLDER).glob("table-*.properties"),
        ]
        newest: dict[str, int] = {}
        for path in files:
            table_id = path.stem.removeprefix("table-")
            written_ms = path.stat().st_mtime_ns // 1_000_000
            newest[table_id] = max(written_ms, newest.get(table_id, 0))
        return tuple(
            TableId(table_id)
            for table_id, written_ms in sorted(newest.items())
            if table_id not in listed and written_ms < older_than_ms
        )

    def close(self) -> None:
        """Closes the database."""
        self.database.close()

    def table_properties_path(self, table_id: TableId) -> Path:
        """Returns the path of the table's property file."""
        return self.folder / _TABLES_FOLDER / check_path(f"table-{table_id}.properties")


@dataclass(frozen=True, slots=True)
class TablePropertyFiles:
    """Implements `sleeper.instance.TablePropertiesStore`."""

    instance: InstanceFolder

    def read(self, table_id: TableId) -> TableProperties:
        text = read_whole(self.instance.table_properties_path(table_id))
        return table_properties_from_text(text, self.instance.properties())

    def write(self, table_id: TableId, properties: TableProperties) -> None:
        self.instance.database.check_writable()
        write_whole(self.instance.table_properties_path(table_id), properties.to_text())

    def change(self, table_id: TableId, changes: Mapping[str, str]) -> TableProperties:
        """See the port. Concurrent changes are all kept."""
        with self.instance.database.write():
            after = self.read(table_id).with_values(changes)
            self.write(table_id, after)
        return after


def create_instance_folder(
    folder: Path, instance_id: str, values: Mapping[str, str] | None = None
) -> InstanceFolder:
    """Creates an instance with these property values in a folder that is new or empty.

    It can be repeated after a crash. A new folder is closed to other users. InvalidRequestError if
    the folder holds an instance or other files.
    """
    folder = folder.resolve()
    properties = instance_properties({**(values or {}), ID.name: instance_id})
    properties.get(ID)
    _check_can_become_instance(folder)
    if not folder.exists():
        make_folder(folder)
        _close_to_others(folder)
    make_folder(folder / _TABLES_FOLDER)
    database = InstanceDatabase(folder / _DATABASE_FILE)
    with _closed_on_error(database):
        database.create()
        # Last, because the file makes the folder an instance.
        write_whole(folder / _PROPERTIES_FILE, properties.to_text())
    return InstanceFolder(folder, database)


def open_instance_folder(folder: Path, read_only: bool = False) -> InstanceFolder:
    """Opens the folder. NotFoundError if it is no instance, DataError if a part is missing."""
    folder = folder.resolve()
    if not (folder / _PROPERTIES_FILE).exists():
        raise NotFoundError(f"{folder} is not an instance: it has no {_PROPERTIES_FILE}")
    if not _has_content(folder / _DATABASE_FILE):
        raise DataError(
            f"{folder / _DATABASE_FILE} does not exist or is empty: it held the instance's table "
            "index and queues (restore the folder from a backup)"
        )
    database = InstanceDatabase(folder / _DATABASE_FILE, read_only)
    with _closed_on_error(database):
        database.check()
    return InstanceFolder(folder, database)


def _close_to_others(folder: Path) -> None:
    """Restricts a new folder to its owner, and to the group if the umask lets a group write."""
    try:
        is_shared = folder.stat().st_mode & stat.S_IWGRP
        folder.chmod(0o770 if is_shared else 0o700)
    except OSError as error:
        raise UnavailableError(f"cannot set the mode of {folder}: {error.strerror}") from error


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}") from error


@contextlib.contextmanager
def _closed_on_error(database: InstanceDatabase) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.close()
        raise


def _check_can_become_instance(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InvalidRequestError(f"{folder} is a file: expected a folder")
    names = {path.name for path in folder.iterdir()}
    if _PROPERTIES_FILE in names:
        raise InvalidRequestError(f"{folder} is already an instance")
    foreign = [name for name in sorted(names) if not _is_of_creation(name)]
    if foreign:
        raise InvalidRequestError(
            f"{folder} is not empty and not an instance: it has {', '.join(foreign[:5])}"
        )


def _is_of_creation(name: str) -> bool:
    return (
        name == _TABLES_FOLDER
        or name.startswith(_DATABASE_FILE)
        or (name.startswith(_PROPERTIES_FILE) and name.endswith(TEMPORARY_SUFFIX))
    )
