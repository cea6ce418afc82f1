"""Listings of backups and of what was restored."""

from sleeper.backup.place import BackupPlace, open_place_to_read
from sleeper.backup.restore import RestoreResult
from sleeper.backup.run import BackupResult
from sleeper.instance import Instance
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize

_TABLE_COLUMNS = (
    Column("name", "Table"),
    Column("number", "Transaction", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
)
_BACKUP_COLUMNS = (
    *_TABLE_COLUMNS,
    Column("copied_objects", "Copied", ColumnKind.COUNT),
    Column("copied_bytes", "Copied bytes", ColumnKind.BYTES),
)
_FAULT_COLUMNS = (
    Column("path", "File", ColumnKind.PATH),
    Column("row_group", "Row group", ColumnKind.COUNT),
    Column("fault", "Fault"),
)
_LIST_COLUMNS = (
    Column("id", "Backup"),
    Column("time", "Time", ColumnKind.TIME),
    Column("tables", "Tables", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("version", "Sleeper"),
)


def describe_backup(result: BackupResult) -> Listing:
    """Returns a row per table of a new backup."""
    tables = pluralize(len(result.tables), "table")
    summary = f"backup {result.id} in {result.place}: {tables}"
    return Listing.describe("backup", summary, _BACKUP_COLUMNS, result.tables)


def describe_restore(result: RestoreResult) -> Listing:
    """Returns a row per restored table."""
    tables = pluralize(len(result.tables), "table")
    summary = f"restored {tables} of backup {result.id} into {result.instance}"
    return Listing.describe("restore", summary, _TABLE_COLUMNS, result.tables)


def describe_faults(result: RestoreResult) -> list[Listing]:
    """Returns a listing of the faults of files, if there are any."""
    faults = [fault for table in result.tables for fault in table.faults]
    if not faults:
        return []
    summary = f"{pluralize(len(faults), 'fault')}, which the files had when they were backed up"
    return [Listing.describe("check", summary, _FAULT_COLUMNS, faults)]


def list_backups(name: str, instance: Instance) -> Listing:
    """Returns a row per backup of a place, newest first. DataError if a manifest is damaged."""
    target = open_place_to_read(name, instance.storage.root)
    rows = [_backup_row(target, each) for each in target.ids()]
    return Listing(
        "backups", f"{pluralize(len(rows), 'backup')} in {name}", _LIST_COLUMNS, tuple(rows)
    )


def _backup_row(target: BackupPlace, backup_id: str) -> tuple[str | int, ...]:
    manifest = target.read(backup_id)
    rows = sum(table.rows for table in manifest.tables)
    size = sum(table.bytes for table in manifest.tables)
    tables = len(manifest.tables)
    return backup_id, manifest.time_ms, tables, rows, size, manifest.version
