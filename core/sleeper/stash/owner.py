"""Who writes a root. Two instances may start stashes of one name at one destination.

Each writes its name to `_TABLES` before its files, and reads it again before it completes the root
and writes the tables there. So at most one of them completes it, and only if it has exactly the
files of that one.
"""

from collections import Counter
from collections.abc import Iterable

from sleeper.errors import DataError, NotFoundError
from sleeper.instance import Instance
from sleeper.properties.instance import ID
from sleeper.stash.destination import StashDestination, open_to_write
from sleeper.stash.layout import TABLES, StashedTable, parse_tables, table_of_piece
from sleeper.stash.record import StashRecord, TableVersion
from sleeper.stash.versions import LostTableError


def claim_root(instance: Instance, record: StashRecord) -> None:
    """Writes the root's owner. Can be repeated. LostTableError if another stash is its owner."""
    destination = open_to_write(record.request.destination, instance.storage.root)
    if _read_owner(destination, record) is None and destination.success(record.name) is None:
        with destination.root.replacing(_owner_path(record)) as sink:
            sink.write(_owner(instance, record))
    _check_owner(instance, record, destination)


def check_root(
    instance: Instance,
    record: StashRecord,
    destination: StashDestination,
    versions: Iterable[TableVersion],
    tables: Iterable[StashedTable],
) -> list[str]:
    """Returns the files of a root that is not complete and has all files of the tables.

    LostTableError if files are missing, or another instance has written to it.
    """
    _check_owner(instance, record, destination)
    start = len(record.name) + 1
    paths = [each.path for each in destination.root.list_objects(record.name)]
    pieces = {path: table_of_piece(path[start:]) for path in paths}
    ours = {None, *(version.id for version in versions)}
    for path, table_id in pieces.items():
        if table_id not in ours:
            raise LostTableError(f"{destination.root.url_of(path)} was written by another instance")
    files = Counter(pieces.values())
    for table in tables:
        if files[table.id] != table.files:
            folder = destination.root.url_of(f"{record.name}/{table.directory}")
            raise LostTableError(
                f"{folder} has {files[table.id]} files (expected {table.files}: were some deleted?)"
            )
    return paths


def _owner_path(record: StashRecord) -> str:
    return f"{record.name}/{TABLES}"


def _check_owner(instance: Instance, record: StashRecord, destination: StashDestination) -> None:
    owner = _read_owner(destination, record)
    where = destination.root.url_of(record.name)
    if owner is None:
        raise LostTableError(f"{where} has no {TABLES} (was it deleted?)")
    if owner != _owner(instance, record) and not _has_tables(owner, record, destination):
        raise LostTableError(f"{where} is written by another instance")


def _has_tables(owner: bytes, record: StashRecord, destination: StashDestination) -> bool:
    """Returns whether the process that completes the root has replaced the owner by the tables."""
    try:
        tables = parse_tables(owner, destination.root.url_of(_owner_path(record)))
    except DataError:
        return False
    versions = {(version.id, version.number) for version in record.versions() or ()}
    return versions.issuperset((table.id, table.version) for table in tables)


def _read_owner(destination: StashDestination, record: StashRecord) -> bytes | None:
    try:
        return destination.root.read(_owner_path(record))
    except NotFoundError:
        return None


def _owner(instance: Instance, record: StashRecord) -> bytes:
    """Returns the owner: instances may have equal ids, but start at another millisecond."""
    name = f"{instance.properties().get(ID)}-{record.name}"
    return f"{name} of {record.request.started_ms}\n".encode()
