"""Backs up an instance in use (docs/backup.md)."""

import hashlib
import logging
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

import sleeper
from sleeper.backup.manifest import (
    Manifest,
    ObjectRecord,
    TableBackup,
    definition_folders,
    time_of_id,
)
from sleeper.backup.objects import (
    CopyCounts,
    FileCopier,
    FileRecord,
    PresentObjects,
    map_in_order,
    read_records,
    write_records,
)
from sleeper.backup.place import LOCK, OBJECTS, BackupPlace, compress, open_place_to_write
from sleeper.backup.work import OnProgress, Progress, working_folder
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
)
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import ID, QUERY_HOLD_SECONDS
from sleeper.query.hold import VersionHold
from sleeper.retries import Backoff, retry
from sleeper.runs.lock import lock_root
from sleeper.statestore.fold import is_jump
from sleeper.statestore.state_file import StateFile, StateObject
from sleeper.tables import TableRef

logger = logging.getLogger(__name__)

_HOLD_BACKOFF = Backoff(5, seconds_first=0.1)


@dataclass(frozen=True, slots=True)
class BackedUpTable:
    """A table of a backup, at `number`, and the objects and bytes that were copied for it."""

    name: str
    number: int
    files: int
    rows: int
    bytes: int
    copied_objects: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A complete backup at `place`, and the number of old backups that it deleted."""

    id: str
    place: str
    tables: tuple[BackedUpTable, ...]
    dropped: int


def back_up(
    instance: Instance,
    place_name: str,
    table_names: Sequence[str] = (),
    keep: int | None = None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> BackupResult:
    """Backs up the tables, by default all, each at its newest version.

    Copies the objects that the place lacks. `keep` then deletes all but the newest backups.
    InvalidRequestError for an unusable place, NotFoundError for an unknown table, ConflictError if
    another backup runs, DataError for a missing or damaged data file. It can be repeated after
    any error.
    """
    if keep is not None and keep < 1:
        raise InvalidRequestError(f"{keep} backups to keep (expected at least 1)")
    names = dict.fromkeys(table_names)
    refs = [instance.tables.index.find(n) for n in names] or list(instance.tables.index.list())
    target = open_place_to_write(place_name, instance)
    work = f"a backup of instance {instance.properties().get(ID)}"
    with (
        lock_root(target.root, LOCK, work, instance.clock) as lock,
        working_folder(instance, "backup-") as folder,
    ):
        run = _Run(instance, target, folder, Progress(_bytes_of_files(instance, refs), on_progress))
        wheels = run.copy_wheels()
        done = []
        for ref in refs:
            try:
                done.append(run.copy_table(ref))
            except SleeperError:
                if names or not _is_deleted(instance, ref):
                    raise
        newest = target.ids()[:1]
        manifest = Manifest(
            max([instance.clock(), *(time_of_id(each) + 1 for each in newest)]),
            sleeper.__version__,
            str(instance.properties().get(ID)),
            instance.properties().to_text(),
            wheels,
            tuple(table for table, _ in done),
            definitions=() if names else _read_definitions(instance),
        )
        lock.check()
        backup_id = target.write(manifest)
        dropped = 0 if keep is None else target.drop_all_but(keep, lock, folder)
    return BackupResult(backup_id, place_name, tuple(_result(*each) for each in done), dropped)


def _read_definitions(instance: Instance) -> tuple[tuple[str, str], ...]:
    root = instance.storage.root
    folders = definition_folders()
    paths = sorted(each.path for folder in folders for each in root.list_objects(f"{folder}/"))
    result = []
    for path in paths:
        if path.endswith(".json"):
            with suppress(NotFoundError):  # deleted meanwhile
                result.append((path, root.read(path).decode()))
    return tuple(result)


def _result(table: TableBackup, counts: CopyCounts) -> BackedUpTable:
    return BackedUpTable(
        table.name,
        table.number,
        table.files,
        table.rows,
        table.bytes,
        counts.objects,
        counts.bytes,
    )


def _is_deleted(instance: Instance, ref: TableRef) -> bool:
    try:
        OpenTable(instance, ref).check_active()
    except StateMovedOnError:
        return True
    return False


def _bytes_of_files(instance: Instance, refs: Sequence[TableRef]) -> int:
    total = 0
    for ref in refs:
        with OpenTable(instance, ref).state.reading() as state:
            total += state.files.extent().bytes
    return total


@dataclass(frozen=True, slots=True)
class _Run:
    instance: Instance
    place: BackupPlace
    folder: Path
    progress: Progress

    def copy_wheels(self) -> tuple[ObjectRecord, ...]:
        registry = self.instance.code.registry
        contents = [(wheel.file_name, registry.read(wheel)) for wheel in registry.wheels()]
        return tuple(
            self.place.put_bytes(f"code/{xxhash.xxh3_128(content).hexdigest()}/{name}", content)
            for name, content in contents
        )

    def copy_table(self, ref: TableRef) -> tuple[TableBackup, CopyCounts]:
        """Copies the newest version of a table, which a hold keeps readable meanwhile."""
        table = OpenTable(self.instance, ref)
        with tempfile.TemporaryDirectory(dir=self.folder) as name, _hold_newest(table) as number:
            folder = Path(name)
            state = StateFile(folder / "state.db")
            table.state.copy_version(number, state.path, keeps_ids=True)
            counts = CopyCounts()
            listed = folder / "objects"
            size = 0
            with write_records(listed) as add:
                for record in self._copy_files(ref, state, folder, counts):
                    size += record.objects[0].bytes
                    add(record)
            compressed = folder / "state.db.zst"
            compress(state.path, compressed)
            content = state.content()
            backup = TableBackup(
                ref.id,
                ref.name,
                ref.online,
                content.number,
                content.time_ms,
                content.files,
                content.rows,
                size,
                table.properties().to_text(),
                self._put_state(ref, number, compressed, ".db.zst"),
                self._put_state(ref, number, listed, ".objects.zst"),
            )
        return backup, counts

    def _put_state(self, ref: TableRef, number: int, file: Path, suffix: str) -> ObjectRecord:
        with file.open("rb") as content:
            checksum = hashlib.file_digest(content, "sha256").hexdigest()[:16]
        return self.place.put(f"{ref.id}/states/{number:019d}-{checksum}{suffix}", file)

    def _copy_files(
        self, ref: TableRef, state: StateFile, folder: Path, counts: CopyCounts
    ) -> Iterator[FileRecord]:
        copier = FileCopier(
            self.instance.storage.root,
            self.place.root,
            OBJECTS,
            self.progress.add,
            counts,
            threading.Lock(),
        )

        def copy(item: tuple[StateObject, list[ObjectRecord | None]]) -> FileRecord:
            try:
                return copier.copy(*item)
            except DataError as error:
                raise DataError(f"cannot back up table {ref.name!r}: {error}") from error

        with closing(PresentObjects(folder / "present.db")) as present:
            for owner in state.owners():
                result = self.place.list_finished(f"{OBJECTS}{owner}/")
                present.add((o.path.removeprefix(OBJECTS), o.bytes) for o in result)
            present.add_digests(self._earlier_records(ref, folder))
            items = (
                (file, [present.find(file.path + suffix) for suffix in ("", *file.sidecars)])
                for file in state.objects()
            )
            yield from map_in_order(copy, items)

    def _earlier_records(self, ref: TableRef, folder: Path) -> Iterator[FileRecord]:
        """Yields the records of the table's newest backup, if it can be read."""
        for backup_id in self.place.ids():
            try:
                tables = self.place.read(backup_id).tables
                for table in tables:
                    if table.id == ref.id:
                        self.place.fetch(table.objects, folder / "earlier")
                        yield from read_records(folder / "earlier", table.objects.path)
                        return
            except (DataError, NotFoundError) as error:
                logger.warning("backup %s is not used as a base: %s", backup_id, error)


@contextmanager
def _hold_newest(table: OpenTable) -> Iterator[int]:
    """Keeps the newest version readable, and yields its number."""
    store, clock = table.state, table.instance.clock
    seconds = table.instance.properties().get(QUERY_HOLD_SECONDS)

    def acquire() -> tuple[int, VersionHold | None]:
        with store.reading() as state:
            number = state.number
            if is_jump(clock(), state.time_ms):
                # The table takes no commits, so no file of it is collected.
                return number, None
        hold = VersionHold(store, number, seconds, clock, "backup")
        hold.acquire()
        return number, hold

    # A collection may raise the horizon between the read and the hold.
    number, hold = retry(acquire, on=StateMovedOnError, backoff=_HOLD_BACKOFF)
    try:
        yield number
    finally:
        if hold is not None:
            hold.release()
