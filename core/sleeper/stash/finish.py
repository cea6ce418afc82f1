"""Ends stashes: completes, cancels and fails them.

The end is decided once in the record, so of a finisher and a cancel at the same time one wins.
What follows from a decision can be repeated.

Two instances may start stashes of one name at one destination. Each writes its name, the *owner* of
the root, to `_TABLES` before its files, and reads it again before it completes the root and writes
the tables there. So at most one of them completes it, and only if it has exactly its files.
"""

import logging
from collections import Counter
from collections.abc import Iterable

from sleeper.errors import ConflictError, DataError, NotFoundError
from sleeper.instance import Instance
from sleeper.properties.instance import ID
from sleeper.stash.destination import StashDestination, open_to_write
from sleeper.stash.files import StashFiles
from sleeper.stash.layout import (
    SUCCESS,
    TABLES,
    StashedTable,
    StashFormat,
    Success,
    format_tables,
    parse_tables,
    root_time_ms,
    table_of_piece,
)
from sleeper.stash.progress import TableProgress
from sleeper.stash.record import Decision, Outcome, StashRecord, TableVersion
from sleeper.stash.versions import LostTableError, release_owned
from sleeper.storage.location import UNFINISHED_SUFFIX

logger = logging.getLogger(__name__)
_ENDS = {
    Outcome.COMPLETE: "was completed",
    Outcome.CANCELLED: "was cancelled",
    Outcome.FAILED: "failed",
}


def stash_id(instance: Instance, record: StashRecord) -> str:
    """Returns the id of a stash in logs, holds and `_SUCCESS`."""
    return f"{instance.properties().get(ID)}-{record.name}"


def hold_owner(instance: Instance, record: StashRecord) -> str:
    """Returns the owner of a stash's holds."""
    return f"stash {stash_id(instance, record)}"


def complete_stash(instance: Instance, record: StashRecord) -> tuple[StashedTable, ...]:
    """Completes a stash whose tasks are all done, and returns its tables.

    Writes `_TABLES`, then `_SUCCESS`, then `_LATEST` of the destination. ConflictError if it was
    cancelled or failed meanwhile. LostTableError, and the end of the stash, if files are missing
    at the destination, or another instance has written to the root.
    """
    destination = open_to_write(record.request.destination, instance.storage.root)
    versions = record.versions() or ()
    progress = record.progress()
    tables = tuple(
        _describe(version, progress[version.id], record.request.format)
        for version in versions
        if not progress[version.id].is_dropped
    )
    paths = _check_completion(instance, record, destination, versions, tables)
    decision = record.decide(Decision(Outcome.COMPLETE, instance.clock()))
    if decision.outcome is not Outcome.COMPLETE:
        end_stash(instance, record, decision)
        raise ConflictError(f"stash {record.name} {describe_decision(decision)}")
    roots = [each for each in destination.roots() if each.name != record.name]
    if paths is not None:
        dropped = [version for version in versions if progress[version.id].is_dropped]
        _delete_unwanted(destination.root, record, paths, dropped)
        _put(destination.root, f"{record.name}/{TABLES}", format_tables(tables))
        # Clocks of several machines differ, and this root must be the one that was completed last.
        others = [each.success.completed_ms + 1 for each in roots if each.success]
        started_ms = root_time_ms(record.name)
        completed_ms = max(instance.clock(), started_ms, *others)
        success = Success(started_ms, completed_ms, stash_id(instance, record))
        _put(destination.root, f"{record.name}/{SUCCESS}", success.to_bytes())
    else:
        # A process that died here may not have synchronized its name.
        path = f"{record.name}/{SUCCESS}"
        _put(destination.root, path, destination.root.read(path))
    for root in filter(lambda each: each.damage, roots):
        logger.warning("stash %s of %s is ignored: %s", root.name, destination.name, root.damage)
    destination.record_latest()
    release_owned(instance, versions, hold_owner(instance, record))
    record.record_end()
    logger.info("completed stash", extra={"job_id": stash_id(instance, record)})
    return tables


def cancel_stash(instance: Instance, record: StashRecord) -> None:
    """Cancels a stash and deletes its files. ConflictError if it is complete or failed."""
    decision = record.decide(Decision(Outcome.CANCELLED, instance.clock()))
    if decision.outcome is not Outcome.CANCELLED:
        raise ConflictError(f"stash {record.name} {describe_decision(decision)} already")
    end_stash(instance, record, decision)


def fail_stash(instance: Instance, record: StashRecord, reason: str) -> Decision:
    """Ends a stash that cannot be completed, and returns the decision that counts.

    Its files remain until they are pruned.
    """
    decision = decide_failure(instance, record, reason)
    end_stash(instance, record, decision)
    return decision


def decide_failure(instance: Instance, record: StashRecord, reason: str) -> Decision:
    """Decides that a stash fails. What follows is up to the process that controls it."""
    return record.decide(Decision(Outcome.FAILED, instance.clock(), reason))


def end_stash(instance: Instance, record: StashRecord, decision: Decision) -> None:
    """Does what follows from the decision. It can be repeated, and by several processes."""
    if decision.outcome is Outcome.COMPLETE:
        complete_stash(instance, record)
        return
    logger.warning(
        "stash %s", describe_decision(decision), extra={"job_id": stash_id(instance, record)}
    )
    if decision.outcome is Outcome.CANCELLED:
        destination = open_to_write(record.request.destination, instance.storage.root)
        files = destination.root
        files.delete([each.path for each in files.list_objects(record.name)])
    release_owned(instance, record.versions() or (), hold_owner(instance, record))
    record.record_end()


def describe_decision(decision: Decision) -> str:
    """Returns the end of a stash, such as "was cancelled", and its reason if there is one."""
    text = _ENDS[decision.outcome]
    return f"{text}: {decision.reason}" if decision.reason else text


def _check_completion(
    instance: Instance,
    record: StashRecord,
    destination: StashDestination,
    versions: tuple[TableVersion, ...],
    tables: tuple[StashedTable, ...],
) -> list[str] | None:
    """Returns the files of the root; None if it is complete, or the stash has ended otherwise.

    LostTableError, and the end of the stash, if the root cannot be completed.
    """
    decision = record.decision()
    if decision is not None and decision.outcome is not Outcome.COMPLETE:
        return None
    try:
        if _is_complete(instance, record, destination):
            return None
        return check_root(instance, record, destination, versions, tables)
    except LostTableError as error:
        decision = decide_failure(instance, record, str(error))
        if decision.outcome is Outcome.CANCELLED:
            return None
        # Another process may have completed the root meanwhile.
        if decision.outcome is Outcome.COMPLETE and _is_complete(instance, record, destination):
            return None
        release_owned(instance, versions, hold_owner(instance, record))
        record.record_end()
        raise


def _is_complete(instance: Instance, record: StashRecord, destination: StashDestination) -> bool:
    try:
        success = destination.success(record.name)
    except DataError:
        return False  # it is written again
    return success is not None and success.stash_id == stash_id(instance, record)


def _describe(version: TableVersion, progress: TableProgress, format: StashFormat) -> StashedTable:
    written = progress.written
    return StashedTable(
        version.table,
        version.id,
        version.number,
        version.time_ms,
        written.rows,
        written.files,
        written.bytes,
        version.table_schema,
        format,
    )


def _delete_unwanted(
    root: StashFiles, record: StashRecord, paths: list[str], dropped: list[TableVersion]
) -> None:
    """Deletes the files of omitted tables, and unfinished ones of killed processes."""
    directories = tuple(f"{record.name}/{version.directory}/" for version in dropped)
    root.delete([p for p in paths if p.endswith(UNFINISHED_SUFFIX) or p.startswith(directories)])


def _put(root: StashFiles, path: str, content: bytes) -> None:
    with root.replacing(path) as sink:
        sink.write(content)


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
