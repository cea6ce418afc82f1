"""The place of backups: its manifests and small objects, and the deletion of old backups."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import xxhash
import zstandard

from sleeper.backup.manifest import (
    Manifest,
    ObjectRecord,
    decode_manifest,
    encode_manifest,
    is_backup_id,
)
from sleeper.backup.objects import digest_object, read_records
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from sleeper.files import StoredObject
from sleeper.instance import Instance
from sleeper.properties.instance import ID
from sleeper.runs.lock import Lock
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.disk import make_folder
from sleeper.storage.location import UNFINISHED_SUFFIX, DataRoot, open_root

PLACE_FILE = "sleeper-backup.json"
PLACE_FORMAT_VERSION = 1
LOCK = "lock"
OBJECTS = "objects/"
_MANIFESTS = "backups/"
_SUFFIX = ".json"
_DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """A folder or bucket of backups. `name` is the user's, for errors."""

    root: DataRoot
    name: str

    def ids(self) -> list[str]:
        """Returns the ids of the backups, newest first."""
        paths = (each.path for each in self.root.list_objects(_MANIFESTS))
        names = (p.removeprefix(_MANIFESTS).removesuffix(_SUFFIX) for p in paths)
        return sorted((name for name in names if is_backup_id(name)), reverse=True)

    def find(self, at: str | None) -> str:
        """Returns the id of a backup from its beginning, by default the newest.

        NotFoundError if there is none, InvalidRequestError if there are several.
        """
        ids = self.ids()
        if not ids:
            raise NotFoundError(f"{self.name} has no backup")
        if at is None:
            return ids[0]
        matches = [each for each in ids if at and each.startswith(at)]
        if not matches:
            raise NotFoundError(f"{self.name} has no backup {at!r} (the newest is {ids[0]})")
        if len(matches) > 1:
            raise InvalidRequestError(f"backup {at!r} is ambiguous: {', '.join(matches[:5])}")
        return matches[0]

    def read(self, backup_id: str) -> Manifest:
        """Returns the manifest of a backup. DataError if it is damaged."""
        try:
            content = self.root.read(_path(backup_id))
        except NotFoundError as error:
            raise NotFoundError(f"{self.name} has no backup {backup_id}") from error
        return decode_manifest(backup_id, content)

    def write(self, manifest: Manifest) -> str:
        """Writes the manifest, which completes the backup. Returns the backup's id."""
        for _ in self.list_finished(_MANIFESTS):
            pass
        backup_id, content = encode_manifest(manifest)
        if not self.root.create(_path(backup_id), content):
            raise ConflictError(f"{self.name} already has backup {backup_id}")
        return backup_id

    def list_finished(self, folder: str) -> Iterator[StoredObject]:
        """Yields the objects below a folder, and deletes what killed processes left unfinished.

        The caller holds the lock.
        """
        for each in self.root.list_objects(folder):
            if each.path.endswith(UNFINISHED_SUFFIX):
                self.root.delete([each.path])
            else:
                yield each

    def put(self, path: str, file: Path) -> ObjectRecord:
        """Stores a file below `objects/` and verifies it."""
        with file.open("rb") as content, self.root.replacing(OBJECTS + path) as sink:
            while chunk := content.read(8 << 20):
                sink.write(chunk)
        return self._verified(path, file.stat().st_size)

    def put_bytes(self, path: str, content: bytes) -> ObjectRecord:
        """Stores bytes below `objects/` and verifies them."""
        with self.root.replacing(OBJECTS + path) as sink:
            sink.write(content)
        return self._verified(path, len(content))

    def _verified(self, path: str, size: int) -> ObjectRecord:
        result = digest_object(self.root, OBJECTS + path)
        if result.bytes != size:
            raise DataError(f"{self.root.url_of(OBJECTS + path)} differs from what was written")
        return ObjectRecord(path, result.bytes, result.digest)

    def fetch(self, record: ObjectRecord, target: Path) -> None:
        """Writes an object below `objects/` to a file. DataError if it is missing or damaged."""
        digest, size = xxhash.xxh3_128(), 0
        try:
            with target.open("wb") as file:
                for chunk in self.root.stream(OBJECTS + record.path):
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
        except NotFoundError as error:
            raise DataError(f"{self.name}: {error}") from error
        check_record(self.root, record, size, digest.hexdigest())

    def drop_all_but(self, count: int, lock: Lock, folder: Path) -> int:
        """Deletes all but the newest backups, then the objects that none names.

        Returns the number of deleted backups. `folder` is for temporary files. DataError if a
        backup that is kept cannot be read: then no object is deleted.
        """
        ids = self.ids()
        kept, old = ids[:count], ids[count:]
        with closing(_NamedObjects(folder / "named.db")) as named:
            for backup_id in kept:
                manifest = self.read(backup_id)
                named.add(OBJECTS + wheel.path for wheel in manifest.wheels)
                for table in manifest.tables:
                    named.add((OBJECTS + table.state.path, OBJECTS + table.objects.path))
                    listed = folder / "listed"
                    self.fetch(table.objects, listed)
                    records = read_records(listed, table.objects.path)
                    named.add(OBJECTS + o.path for record in records for o in record.objects)
            lock.check()
            self.root.delete([_path(backup_id) for backup_id in old])
            unnamed = named.missing(self.root)
            while paths := list(islice(unnamed, _DELETED_AT_ONCE)):
                lock.check()
                self.root.delete(paths)
        return len(old)


class _NamedObjects:
    """The paths that manifests name, in a database on disk."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("CREATE TABLE named (path TEXT PRIMARY KEY) WITHOUT ROWID")

    def close(self) -> None:
        self._connection.close()

    def add(self, paths: Iterator[str] | tuple[str, ...]) -> None:
        self._connection.execute("BEGIN")
        sql = "INSERT OR IGNORE INTO named VALUES (?)"
        self._connection.executemany(sql, ((path,) for path in paths))
        self._connection.execute("COMMIT")

    def missing(self, root: DataRoot) -> Iterator[str]:
        """Yields the objects of the place that are not named."""
        for each in root.list_objects(OBJECTS):
            sql = "SELECT 1 FROM named WHERE path = ?"
            if self._connection.execute(sql, (each.path,)).fetchone() is None:
                yield each.path


def check_record(root: DataRoot, record: ObjectRecord, size: int, digest: str) -> None:
    """Raises DataError if an object's size or digest differ from its record."""
    where = root.url_of(OBJECTS + record.path)
    if size != record.bytes:
        raise DataError(f"{where} has {size:,} bytes (expected {record.bytes:,})")
    if digest != record.digest:
        raise DataError(f"{where} is damaged: its checksum differs")


def open_place_to_write(name: str, instance: Instance) -> BackupPlace:
    """Opens a place for backups of the instance, and creates it if nothing is there.

    InvalidRequestError if it is inside the instance, holds other objects, or another instance's
    backups.
    """
    _check_outside(name, instance)
    if not is_s3_url(name):
        _make_private_folder(Path(name).resolve())
    root = open_root(name, instance.storage.root)
    _claim(root, name, instance)
    return BackupPlace(root, name)


def open_place_to_read(name: str, like: DataRoot | None = None) -> BackupPlace:
    """Opens a place of backups. NotFoundError if it holds none."""
    if not is_s3_url(name) and not (Path(name) / PLACE_FILE).exists():
        raise NotFoundError(f"{name} holds no backups: it has no {PLACE_FILE}")
    target = BackupPlace(open_root(name, like), name)
    _read_owner(target.root, name)
    return target


def _check_outside(name: str, instance: Instance) -> None:
    own = instance.storage.root
    if is_s3_url(name):
        bucket = name.partition("://")[2].partition("/")[0]
        if any(each.name == bucket for each in own.buckets):
            raise InvalidRequestError(f"{name} is in the instance's own bucket")
        return
    path = Path(name).resolve()
    if not own.buckets and path.is_relative_to(Path(own.url_of("")).resolve()):
        raise InvalidRequestError(f"{name} is inside the instance's folder {own.url_of('')}")
    if path.exists() and not path.is_dir():
        raise InvalidRequestError(f"{name} is a file (expected a folder, or s3://bucket/prefix)")


def _make_private_folder(folder: Path) -> None:
    """Creates the folder, closed to other users: it will have all rows of the instance."""
    if folder.exists():
        return
    make_folder(folder)
    try:
        os.chmod(folder, 0o700)
    except OSError as error:
        raise UnavailableError(f"cannot set the mode of {folder}: {error.strerror}") from error


def _claim(root: DataRoot, name: str, instance: Instance) -> None:
    """Makes the root a place of the instance's backups, unless it is one."""
    instance_id = str(instance.properties().get(ID))
    try:
        owner = _read_owner(root, name)
    except NotFoundError:
        other = next((o.path for o in root.list_objects("") if not _is_unfinished(o.path)), None)
        if other is not None:
            raise InvalidRequestError(
                f"{name} is not empty and holds no backups: it has {other} (expected an empty "
                "folder)"
            ) from None
        text = json.dumps({"format": PLACE_FORMAT_VERSION, "instance": instance_id})
        if root.create(PLACE_FILE, f"{text}\n".encode()):
            return
        owner = _read_owner(root, name)
    if owner != instance_id:
        raise InvalidRequestError(
            f"{name} holds backups of instance {owner!r} (expected those of {instance_id!r})"
        )


def _is_unfinished(path: str) -> bool:
    return path == LOCK or (path.startswith(PLACE_FILE) and path.endswith(UNFINISHED_SUFFIX))


def _read_owner(root: DataRoot, name: str) -> str:
    try:
        text = root.read(PLACE_FILE)
    except NotFoundError as error:
        raise NotFoundError(f"{name} holds no backups: it has no {PLACE_FILE}") from error
    try:
        content = json.loads(text)
        number, owner = int(content["format"]), str(content["instance"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{root.url_of(PLACE_FILE)} is damaged: {error!r}") from error
    if number > PLACE_FORMAT_VERSION:
        raise DataError(
            f"{name} has format {number}, this version reads up to {PLACE_FORMAT_VERSION}"
        )
    return owner


def _path(backup_id: str) -> str:
    return f"{_MANIFESTS}{backup_id}{_SUFFIX}"


def compress(source: Path, target: Path) -> None:
    """Compresses a file."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with source.open("rb") as reader, target.open("wb") as writer:
        compressor.copy_stream(reader, writer, size=source.stat().st_size)


def decompress(source: Path, target: Path, name: str) -> None:
    """Decompresses a file. DataError names it if it is damaged."""
    try:
        with source.open("rb") as reader, target.open("wb") as writer:
            zstandard.ZstdDecompressor().copy_stream(reader, writer)
    except zstandard.ZstdError as error:
        raise DataError(f"{name} is damaged: {error}") from error
