"""State snapshots: copies of the fold in the object store, compressed and checked.

A snapshot's name is `<number, 19 digits>-<unique>-<start of its SHA-256>.db.zst`, so a
listing distinguishes them and readers can verify them. A snapshot never contains the log.
"""

import hashlib
import logging
import re
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
import zstandard
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore

from sleeper.errors import DataError, UnavailableError
from sleeper.statestore.database import Database
from sleeper.statestore.fold_tables import create_tables
from sleeper.statestore.version_copy import copy_state
from sleeper.statestore.wal import replace_database
from sleeper.storage.bucket import missing_object_error
from sleeper.storage.disk import delete_durably, make_folder, replacing_file

SNAPSHOT_FOLDER_PREFIX = "sleeper-snapshot-"
"""The prefix of temporary folders; a killed process leaves its folder."""

_COMPRESSION_LEVEL = 3
_CHUNK_BYTES = 4 << 20
_CHECKSUM_DIGITS = 16
_NAME = re.compile(r"(\d{19})-[0-9a-f]+-([0-9a-f]{16})\.db\.zst$")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The path of a snapshot, the number of its state, and a prefix of its checksum."""

    path: str
    number: int
    checksum: str


class SnapshotStore:
    """The snapshots of one table, under `<table id>/snapshots/` of an object store."""

    def __init__(self, store: ObjectStore, table_id: str) -> None:
        self._store = store
        self._prefix = f"{table_id}/snapshots"
        self._verified: set[str] = set()

    def save(self, database: Database) -> int:
        """Writes the current state, verifies it, and returns its number.

        DataError if the stored snapshot differs.
        """
        with temporary_folder(None) as folder:
            copy = Path(folder, "state.db")
            number = copy_state(database, copy)
            snapshot = self._save_file(copy, number)
        # Another process that saved a newer snapshot may have deleted this one.
        if not self._verify(snapshot) and not any(s.number > number for s in self.verified(1)):
            raise DataError(f"snapshot {snapshot.path} differs from what was written")
        return number

    def save_file(self, state: Path) -> int:
        """Stores a file of a state as the snapshot of its number, and returns that."""
        with closing(sqlite3.connect(state, isolation_level=None)) as connection:
            (number,) = connection.execute("SELECT number FROM position").fetchone()
        snapshot = self._save_file(state, int(number))
        if not self._verify(snapshot):
            raise DataError(f"snapshot {snapshot.path} differs from what was written")
        return snapshot.number

    def _save_file(self, state: Path, number: int) -> Snapshot:
        with temporary_folder(None) as folder:
            compressed = Path(folder, "state.db.zst")
            checksum = compress(state, compressed)
            name = f"{number:019d}-{uuid.uuid4().hex[:8]}-{checksum}.db.zst"
            snapshot = Snapshot(f"{self._prefix}/{name}", number, checksum)
            self._put(snapshot, compressed)
        return snapshot

    def _put(self, snapshot: Snapshot, content: Path) -> None:
        """Stores the snapshot durably, because the log is trimmed afterwards."""
        with self._translated(snapshot.path):
            if not isinstance(self._store, LocalStore):
                obstore.put(self._store, snapshot.path, content)
                return
            # LocalStore does not sync files.
            assert self._store.prefix is not None
            target = Path(self._store.prefix, snapshot.path)
            make_folder(target.parent)
            try:
                unfinished = target.with_name(f"{target.name}.unfinished")
                with replacing_file(target, unfinished) as copy:
                    shutil.copyfile(content, copy)
            except OSError:
                # The log would be trimmed for a snapshot that a power failure may undo.
                target.unlink(missing_ok=True)
                raise

    def all(self) -> list[Snapshot]:
        """Returns all snapshots, valid or not, newest first."""
        result = []
        with self._translated(self._prefix):
            for page in obstore.list(self._store, prefix=self._prefix):
                for item in page:
                    match = _NAME.search(item["path"])
                    if match:
                        result.append(Snapshot(item["path"], int(match[1]), match[2]))
        return sorted(result, key=lambda s: (s.number, s.path), reverse=True)

    def verified(self, count: int, number_max: int | None = None) -> list[Snapshot]:
        """Returns the newest `count` valid snapshots up to `number_max`, newest first."""
        valid: list[Snapshot] = []
        for snapshot in self.all():
            if len(valid) == count:
                break
            if (number_max is None or snapshot.number <= number_max) and self._verify(snapshot):
                valid.append(snapshot)
        return valid

    def open_newest(self, into: Database, number_max: int | None = None) -> int | None:
        """Replaces the database's content by the newest valid snapshot up to that number.

        Returns its number; None if there is none. Torn snapshots are skipped.
        """
        with self._newest_valid(into.path.parent, number_max) as result:
            if result is None:
                return None
            snapshot, file = result
            with (
                into.exclusively() as connection,
                closing(sqlite3.connect(file, isolation_level=None)) as source,
            ):
                source.backup(connection)
            return snapshot.number

    def install_newest(self, path: Path) -> int | None:
        """Creates a database file from the newest valid snapshot. Returns its number, or None."""
        with self._newest_valid(path.parent) as result:
            if result is None:
                return None
            snapshot, file = result
            replace_database(path, file)
            return snapshot.number

    def drop_all_but(self, count: int, head: Callable[[], int]) -> None:
        """Deletes snapshots older than the newest `count` valid ones, and those ahead of the log.

        A log restored from a backup no longer has the transactions of the latter.
        """
        # The head is read after the listing, because another process may save a newer snapshot.
        listed = self.all()
        number_max = head()
        for ahead in [s.path for s in listed if s.number > number_max]:
            logger.warning("snapshot %s is ahead of the log at %d: deleted", ahead, number_max)
            self._delete(ahead)
        kept = self.verified(count, number_max)
        if len(kept) == count:
            oldest = kept[-1]
            for old in [s.path for s in self.all() if s.number < oldest.number]:
                self._delete(old)

    def _delete(self, path: str) -> None:
        """Deletes a snapshot, durably, which another process may delete too."""
        with self._translated(path), suppress(FileNotFoundError):
            if isinstance(self._store, LocalStore):
                assert self._store.prefix is not None
                delete_durably([Path(self._store.prefix, path)])
            else:
                obstore.delete(self._store, path)

    @contextmanager
    def _newest_valid(
        self, folder: Path, number_max: int | None = None
    ) -> Iterator[tuple[Snapshot, Path] | None]:
        """Yields the newest valid snapshot as a temporary file."""
        with temporary_folder(folder) as temporary:
            file = Path(temporary, "state.db")
            for snapshot in self.all():
                if number_max is not None and snapshot.number > number_max:
                    continue
                try:
                    self._fetch(snapshot, file)
                    _check(snapshot, file)
                except sqlite3.OperationalError:
                    raise  # of the disk, not of the snapshot
                except (DataError, sqlite3.Error, ValueError, TypeError) as error:
                    logger.warning("skipped snapshot %s: %s", snapshot.path, error)
                    continue
                yield snapshot, file
                return
            yield None

    def _verify(self, snapshot: Snapshot) -> bool:
        if snapshot.path not in self._verified:
            try:
                for _ in self._chunks(snapshot):
                    pass
            except DataError as error:
                logger.warning("snapshot is invalid: %s", error)
                return False
            self._verified.add(snapshot.path)
        return True

    def _fetch(self, snapshot: Snapshot, target: Path) -> None:
        with target.open("wb") as file, zstandard.ZstdDecompressor().stream_writer(file) as out:
            for chunk in self._chunks(snapshot):
                try:
                    out.write(chunk)
                except zstandard.ZstdError as error:
                    raise DataError(f"snapshot {snapshot.path}: {error}") from error

    def _chunks(self, snapshot: Snapshot) -> Iterator[bytes]:
        """Yields the compressed content. DataError at its end if the checksum differs."""
        digest = hashlib.sha256()
        with self._translated(snapshot.path):
            for chunk in obstore.get(self._store, snapshot.path).stream(
                min_chunk_size=_CHUNK_BYTES
            ):
                content = bytes(chunk)
                digest.update(content)
                yield content
        if not digest.hexdigest().startswith(snapshot.checksum):
            raise DataError(f"snapshot {snapshot.path} is damaged: its checksum differs")

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            missing = missing_object_error(path, error)
            if isinstance(missing, UnavailableError):
                raise missing from error
            raise DataError(f"snapshot {path} is missing: {error}") from error
        except (BaseError, OSError) as error:
            raise UnavailableError(f"snapshot {path}: {error}") from error


@contextmanager
def temporary_folder(parent: Path | None) -> Iterator[str]:
    """Yields a temporary folder for a state. UnavailableError if the disk is full or fails."""
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=SNAPSHOT_FOLDER_PREFIX) as folder:
            yield folder
    except (OSError, sqlite3.OperationalError) as error:
        raise UnavailableError(f"not enough disk space for a snapshot: {error}") from error


def compress(source: Path, target: Path) -> str:
    """Compresses a state. Returns the start of the SHA-256 of the compressed file."""
    compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True)
    with source.open("rb") as reader, target.open("wb") as writer:
        compressor.copy_stream(reader, writer, size=source.stat().st_size)
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_CHECKSUM_DIGITS]


def _check(snapshot: Snapshot, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        create_tables(connection)  # refuses a newer format
        (number,) = connection.execute("SELECT number FROM position").fetchone()
        if number != snapshot.number:
            raise DataError(f"snapshot {snapshot.path} holds the state at {number}")
