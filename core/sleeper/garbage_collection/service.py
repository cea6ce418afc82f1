"""Garbage collection of the tables of an instance, and state snapshots."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)
from sleeper.garbage_collection.clones import drop_stale_pins, keeps_pinned_files, unpin_files
from sleeper.garbage_collection.collection import (
    CollectionReport,
    collect_garbage,
    find_claims,
    find_retention,
)
from sleeper.garbage_collection.orphans import OrphanReport, collect_orphans
from sleeper.garbage_collection.snapshot_versions import (
    ExpiryReport,
    expire_versions,
    find_policy,
)
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import DELETION_DELAY_HOURS, SNAPSHOT_TRANSACTIONS_MIN
from sleeper.tables import (
    TableId,
    TableIndex,
    TableRef,
    TableState,
    claim_abandoned,
    end_retention,
)

RemovePiece = Callable[[TableId], object]
"""Removes one part of a table. Idempotent."""


def finish_table_deletion(table: TableRef, index: TableIndex, *remove: RemovePiece) -> None:
    """Removes the parts of a table in order, then its row in the index.

    The row remains until the end, so a later call finishes an interrupted deletion.
    InvalidRequestError if the table is in use.
    """
    if table.state is not TableState.DELETING:
        raise InvalidRequestError(f"table {table.name!r} is in use: it is not being deleted")
    for remove_piece in remove:
        remove_piece(table.id)
    index.remove(table.id)
    logger.info("table deleted", extra={"table": table.id})


logger = logging.getLogger(__name__)
_HOUR_MS = 3_600_000
_ABANDONED_MS = _HOUR_MS
# No creation that was paused goes on after so long.
_CLAIMED_MS = 30 * 24 * _HOUR_MS
# A smaller entry of the log needs less space.
_FILES_MAX_WHEN_FULL = 500
# The number of the only transaction that a creation commits.
_CREATION_NUMBER = 1


def collect_table(instance: Instance, name: str, dry_run: bool = False) -> CollectionReport:
    """Deletes the unneeded files of a table."""
    return run_garbage_collection(instance, instance.tables.index.find(name), dry_run)


def run_garbage_collection(
    instance: Instance, ref: TableRef, dry_run: bool = False
) -> CollectionReport:
    """Collects the table of the reference. Versions of a snapshot table expire before."""
    table = OpenTable(instance, ref)
    if dry_run:
        return _collect(table, dry_run=True)
    with instance.storage.released_reserve() as is_full:
        if is_full:
            _save_space(table)
        drop_stale_pins(instance, table.state)
        _expire_versions(table)
        return _collect(table, files_max=_FILES_MAX_WHEN_FULL if is_full else None)


def _save_space(table: OpenTable) -> None:
    try:
        table.state.save_space()
    except UnavailableError as error:
        logger.warning("could not save space: %s", error, extra={"table": table.ref.id})


def _collect(
    table: OpenTable, dry_run: bool = False, files_max: int | None = None
) -> CollectionReport:
    instance, ref = table.instance, table.ref
    return collect_garbage(
        ref.id,
        table.state,
        table.properties(),
        instance.storage.root.delete,
        instance.clock,
        dry_run,
        lambda owner, paths: unpin_files(instance, ref.id, owner, paths),
        files_max,
    )


def _expire_versions(table: OpenTable) -> None:
    with table.state.reading() as state:
        has_versions = bool(state.snapshots.versions())
    if has_versions:
        expire_versions(table.state, find_policy(table.properties()), table.instance.clock)


def expire_table_versions(instance: Instance, name: str, dry_run: bool = False) -> ExpiryReport:
    """Expires the versions of a snapshot table that its properties do not keep, without delay.

    InvalidRequestError if the table is not a snapshot table.
    """
    table = instance.table(name)
    policy = find_policy(table.properties(), has_delay=False)
    try:
        return expire_versions(table.state, policy, instance.clock, dry_run)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {name!r}: {error}") from error


def collect_table_orphans(instance: Instance, name: str, dry_run: bool = False) -> OrphanReport:
    """Deletes the objects of runs that ended before their commit."""
    return run_orphan_collection(instance, instance.tables.index.find(name), dry_run)


def run_orphan_collection(instance: Instance, ref: TableRef, dry_run: bool = False) -> OrphanReport:
    """Collects the table of the reference."""
    table = OpenTable(instance, ref)
    return collect_orphans(
        table.ref.id,
        table.state,
        table.properties(),
        instance.storage.root.list_objects,
        instance.storage.root.delete,
        instance.clock,
        dry_run,
    )


def finish_deletions(instance: Instance) -> int:
    """Finishes the deletion of tables that were deleted; returns how many.

    A table that can be brought back stays until its time has passed. A table with files that clones
    need stays. One that fails keeps none of the others; the first failure is raised after them.
    """
    failures: list[SleeperError] = []
    finished = 0
    for ref in instance.tables.index.list(TableState.DELETING):
        try:
            final = _end_retention(instance, ref)
            if final is None or keeps_pinned_files(instance, final):
                continue
            finish_table_deletion(final, instance.tables.index, instance.tables.delete)
            finished += 1
        except SleeperError as error:
            logger.warning("deletion not finished: %s", error, extra={"table": ref.id})
            failures.append(error)
    if failures:
        raise failures[0]
    return finished


def _end_retention(instance: Instance, ref: TableRef) -> TableRef | None:
    """Returns the table with a final deletion, None if it stays or was brought back."""
    if ref.deleted_ms is None:
        return ref
    hours = instance.properties().get(DELETION_DELAY_HOURS)
    if instance.clock() < ref.deleted_ms + hours * _HOUR_MS:
        return None
    try:
        return end_retention(instance.tables.index, ref)
    except ConflictError:
        return None


def sweep_abandoned(instance: Instance) -> int:
    """Removes what creations of tables left that died before the table stood; returns how many.

    A creation that was only paused fails. Each sweep removes what it still wrote, and what a sweep
    left that died, until the claim on its id ends. A table with data is kept: its row was lost,
    perhaps by restoring an older index.
    """
    index, now_ms = instance.tables.index, instance.clock()
    abandoned = [
        table_id
        for table_id in instance.tables.abandoned(now_ms - _ABANDONED_MS)
        if not _has_data(instance, table_id) and claim_abandoned(index, table_id, now_ms)
    ]
    for ref in index.list(TableState.ABANDONED):
        instance.tables.delete(ref.id)
        if ref.deleted_ms is None or ref.deleted_ms + _CLAIMED_MS < now_ms:
            final = replace(ref, state=TableState.DELETING, deleted_ms=None)
            index.replace(ref, final)
            finish_table_deletion(final, index, instance.tables.delete)
    return len(abandoned)


def _has_data(instance: Instance, table_id: TableId) -> bool:
    """Returns whether the table may hold more than its creation wrote."""
    try:
        has_data = _was_changed(instance, table_id)
    except SleeperError as error:
        logger.warning("table %s is not in the index and cannot be read: %s", table_id, error)
        return True
    if has_data:
        logger.warning("table %s is not in the index and has data: it is kept", table_id)
    return has_data


def _was_changed(instance: Instance, table_id: TableId) -> bool:
    folders = tuple(f"{table_id}/{kind}/" for kind in ("data", "snapshots"))
    if any(each.path.startswith(folders) for each in instance.storage.root.list_objects(table_id)):
        return True
    try:
        with instance.tables.state(table_id).reading() as state:
            return bool(state.number > _CREATION_NUMBER)
    except NotFoundError:
        return False  # not initialised


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The version that a snapshot holds, and up to where the log was trimmed."""

    number: int
    trimmed_to: int


def snapshot_table(
    instance: Instance, ref: TableRef, always: bool = False
) -> SnapshotReport | None:
    """Stores the table's state and trims its log; None if too little happened since the last."""
    table = OpenTable(instance, ref)
    state = table.state
    with state.reading() as now:
        number = now.number
    newest = state.newest_snapshot()
    least = instance.properties().get(SNAPSHOT_TRANSACTIONS_MIN)
    if not always and number - (newest or 0) < least:
        return None
    saved = state.save_snapshot()
    retention = find_retention(table.properties())
    claims = find_claims(state, instance.clock(), retention)
    return SnapshotReport(saved, state.trim(claims.horizon_max))
