"""Restores tables from a backup into an instance that does not have them (docs/backup.md).

A *marker* in the instance's data root names the backup while it is restored, so that a repeated
restore continues an interrupted one. Rows in the table index make the tables visible, after all
objects are there and verified.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.admin.instance_folder import remove_deployed
from sleeper.backup.manifest import Manifest, ObjectRecord, TableBackup
from sleeper.backup.objects import (
    FileRecord,
    copy_object,
    digest_object,
    map_in_order,
    read_records,
)
from sleeper.backup.place import OBJECTS, BackupPlace, check_record, decompress
from sleeper.backup.work import OnProgress, Progress, working_folder
from sleeper.datafiles.verification import FileFault
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
)
from sleeper.instance import Instance, OpenTable
from sleeper.json_codec import JsonCodec
from sleeper.properties.instance import ID
from sleeper.properties.java_text import read_properties_text
from sleeper.properties.values import table_properties_from_text
from sleeper.reports.check import check_version
from sleeper.runs.lock import lock_root
from sleeper.statestore.fold import is_jump
from sleeper.statestore.state_file import StateFile, own_path
from sleeper.storage.location import check_path
from sleeper.systems import load, systems
from sleeper.tables import TableId, TableRef, TableState

MARKER = "restore.json"
LOCK = "restore.lock"


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """A restored table at `number`, with its data files and their rows, which were counted.

    `faults` are those that a check of all files found: the table had them when it was backed up.
    `is_stale`: it takes commits only after `sleeper table accept-time`.
    """

    name: str
    number: int
    files: int
    rows: int
    bytes: int
    faults: tuple[FileFault, ...] = ()
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The tables that were restored from a backup.

    `earlier` names those that an interrupted restore of the same backup had completed.
    """

    id: str
    instance: str
    tables: tuple[RestoredTable, ...]
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Marker:
    """The backup that is being restored, and the ids of its tables."""

    backup: str
    tables: tuple[str, ...]


_MARKER_CODEC = JsonCodec(_Marker)


def instance_values(manifest: Manifest) -> tuple[str, Mapping[str, str]]:
    """Returns id and properties for a new local instance, without those of a deployment."""
    values = remove_deployed(read_properties_text(manifest.properties))
    return manifest.instance, {k: v for k, v in values.items() if k != ID.name}


def restore(
    instance: Instance,
    backups: BackupPlace,
    backup_id: str,
    table_names: Sequence[str] = (),
    on_progress: OnProgress = lambda _done, _total: None,
) -> RestoreResult:
    """Restores the tables of a backup, by default all, under their ids and names.

    ConflictError if a table exists, if another restore runs, or if one of another backup was
    interrupted. NotFoundError if the backup lacks a table. DataError if an object of the backup is
    missing or damaged: then no table becomes visible. It can be repeated after any error.
    """
    manifest = backups.read(backup_id)
    tables = _choose(manifest, backup_id, table_names)
    for table in tables:
        table_properties_from_text(table.properties, instance.properties())
    root = instance.storage.root
    work = f"a restore of backup {backup_id}"
    with lock_root(root, LOCK, work, instance.clock) as lock:
        _mark(instance, backup_id, tables)
        rows = _rows(instance)
        new = [table for table in tables if table.id not in rows]
        _check_names(instance, new)
        earlier = tuple(table.name for table in tables if table.id in rows)
        with working_folder(instance, "restore-") as folder:
            # Each table is copied, and then checked.
            total = 2 * sum(table.bytes for table in new)
            run = _Run(instance, backups, folder, Progress(total, on_progress))
            run.restore_wheels(manifest)
            restored = tuple(run.restore_table(table) for table in new)
        for table in new:
            lock.check()
            instance.tables.index.create(table.ref)
        if not table_names:
            for path, definition in manifest.definitions:
                root.create(path, definition.encode())
        root.delete([MARKER])
    return RestoreResult(backup_id, instance.where, restored, earlier)


def _choose(manifest: Manifest, backup_id: str, names: Sequence[str]) -> list[TableBackup]:
    by_name = {table.name: table for table in manifest.tables}
    for name in names:
        if name not in by_name:
            tables = ", ".join(sorted(by_name)) or "none"
            raise NotFoundError(f"backup {backup_id} has no table {name!r} (its tables: {tables})")
    return [by_name[name] for name in dict.fromkeys(names)] or list(manifest.tables)


def _rows(instance: Instance) -> dict[TableId, TableRef]:
    """Returns the rows of the table index, in any state."""
    return {ref.id: ref for state in TableState for ref in instance.tables.index.list(state)}


def _mark(instance: Instance, backup_id: str, tables: Sequence[TableBackup]) -> None:
    """Writes the marker, or finds that of an interrupted run of the same restore."""
    root = instance.storage.root
    marker = _Marker(backup_id, tuple(table.id for table in tables))
    try:
        result = _MARKER_CODEC.parse(root.read(MARKER).decode(), root.url_of(MARKER), DataError)
    except NotFoundError:
        _check_absent(instance, tables)
        root.create(MARKER, _MARKER_CODEC.format(marker).encode())
        return
    if result != marker:
        raise ConflictError(
            f"{instance.where} has an unfinished restore of backup {result.backup}, of "
            f"{len(result.tables)} tables (expected it to be finished first)"
        )


def _check_absent(instance: Instance, tables: Sequence[TableBackup]) -> None:
    _check_names(instance, tables)
    rows = _rows(instance)
    for table in tables:
        if table.id in rows:
            ref = rows[table.id]
            state = "" if ref.state is TableState.ACTIVE else f" ({ref.state.value})"
            raise ConflictError(
                f"table {ref.name!r} with id {ref.id} already exists in {instance.where}{state}"
            )
        for each in instance.storage.root.list_objects(f"{table.id}/"):
            raise ConflictError(
                f"{instance.where} has objects of table {table.id} that the table index does not "
                f"list, such as {each.path} (expected none: a restore does not overwrite them)"
            )


def _check_names(instance: Instance, tables: Sequence[TableBackup]) -> None:
    ids = {ref.name: ref.id for ref in instance.tables.index.list()}
    for table in tables:
        if ids.get(table.name, table.id) != table.id:
            raise ConflictError(f"table {table.name!r} already exists, with id {ids[table.name]}")


@dataclass(frozen=True, slots=True)
class _Run:
    instance: Instance
    place: BackupPlace
    folder: Path
    progress: Progress

    def restore_wheels(self, manifest: Manifest) -> None:
        for record in manifest.wheels:
            file = self.folder / "wheel"
            self.place.fetch(record, file)
            name = record.path.rpartition("/")[2]
            self.instance.code.registry.restore(name, file.read_bytes())

    def restore_table(self, table: TableBackup) -> RestoredTable:
        """Restores everything of a table except its row in the index."""
        properties = table_properties_from_text(table.properties, self.instance.properties())
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            state = self._fetch_state(table, folder)
            listed = folder / "listed"
            self.place.fetch(table.objects, listed)
            self._check_list(table, state, listed)
            state.own_objects(table.id)
            self.instance.tables.create(table.id)
            # Before the objects: a table with a state is not taken for an abandoned creation.
            self.instance.tables.install(table.id, state.path)
            self.instance.tables.properties.write(table.id, properties)
            records = read_records(listed, table.objects.path)
            for _ in map_in_order(lambda record: self._restore_file(table, record), records):
                pass
        for system in systems():
            if system.restore is not None:
                load(system.restore)(self.instance, table.ref)
        return self._check(table)

    def _fetch_state(self, table: TableBackup, folder: Path) -> StateFile:
        compressed, state = folder / "state.db.zst", StateFile(folder / "state.db")
        self.place.fetch(table.state, compressed)
        decompress(compressed, state.path, table.state.path)
        state.upgrade()
        content = state.content()
        if (content.number, content.files, content.rows) != (table.number, table.files, table.rows):
            raise DataError(
                f"table {table.name!r}: its state has {content.files:,} files and "
                f"{content.rows:,} rows at {content.number:,} (expected {table.files:,} and "
                f"{table.rows:,} at {table.number:,})"
            )
        return state

    def _check_list(self, table: TableBackup, state: StateFile, listed: Path) -> None:
        """Checks that the list has the objects of the state, in the same order, and their paths."""
        records = read_records(listed, table.objects.path)
        for file in state.objects():
            record = next(records, None)
            paths = [file.path, *(file.path + suffix for suffix in file.sidecars)]
            if record is None or [o.path for o in record.objects] != paths:
                raise DataError(f"table {table.name!r}: the list of objects lacks {file.path}")
            try:
                list(map(check_path, paths))
            except InvalidRequestError as error:
                raise DataError(f"table {table.name!r}: {error}") from error

    def _restore_file(self, table: TableBackup, record: FileRecord) -> None:
        for each in reversed(record.objects):
            on_bytes = self.progress.add if each is record.objects[0] else lambda _: None
            try:
                self._restore_object(table, each, on_bytes)
            except NotFoundError as error:
                raise DataError(
                    f"cannot restore table {table.name!r}: {error} (expected in {self.place.name})"
                ) from error
            except DataError as error:
                raise DataError(f"cannot restore table {table.name!r}: {error}") from error

    def _restore_object(
        self, table: TableBackup, record: ObjectRecord, on_bytes: Callable[[int], None]
    ) -> None:
        root, path = self.instance.storage.root, record.path
        if not path.startswith(f"{table.id}/"):
            path = own_path(table.id, path)
        try:
            result = digest_object(root, path)
            if (result.bytes, result.digest) == (record.bytes, record.digest):
                # An interrupted run restored it, perhaps without the sync of its folder.
                root.sync_names([path])
                on_bytes(record.bytes)
                return
        except NotFoundError:
            pass
        copied = copy_object(self.place.root, OBJECTS + record.path, root, path, on_bytes)
        check_record(self.place.root, record, copied.bytes, copied.digest)

    def _check(self, table: TableBackup) -> RestoredTable:
        """Reads all rows. Faults do not prevent the restore: all bytes are those of the backup."""
        opened = OpenTable(self.instance, table.ref)
        bytes_per_row = table.bytes / max(table.rows, 1)
        checked = 0

        def count(rows: int, _total: int) -> None:
            nonlocal checked
            self.progress.add(int(rows * bytes_per_row) - checked)
            checked = int(rows * bytes_per_row)

        report = check_version(opened, table.number, count)
        now_ms = self.instance.clock()
        is_stale = is_jump(now_ms, table.time_ms)
        return RestoredTable(
            table.name,
            report.version,
            report.files,
            report.rows,
            table.bytes,
            tuple(report.findings),
            is_stale,
        )
