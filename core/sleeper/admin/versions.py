"""Restores old versions of tables, undoes jobs, and empties tables (design note 13)."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.partition import subtree, tree_from_split_points
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import KeyValue
from sleeper.statestore.transactions.partition_split import SPLIT_LEVELS_MAX, SplitPartition
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.transaction import (
    Outcome,
    Status,
    Transaction,
    check_outcome,
    new_transaction_id,
)
from sleeper.statestore.version import Version

_ID_CHARACTERS_MAX = 200
_SPLIT_POINTS_MAX = 2**SPLIT_LEVELS_MAX - 1


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The transaction `number` that changed which rows a table has, and its `id`.

    `version` is the one that was restored, None if none was or if an earlier call chose it by time.
    `already_done`: an earlier call with the id did it, or nothing was left to do (then `number` is
    None).
    """

    table: str
    id: str
    number: int | None
    version: int | None
    already_done: bool


def restore_table(
    instance: Instance, table_name: str, to: Version, restore_id: str | None = None
) -> VersionChange:
    """Makes the rows of a version those of the newest version, in one transaction.

    Schema, processing and partitions stay. A repeated call with the id of an earlier one, within 30
    days, changes nothing. InvalidRequestError for a version that is no longer readable or does not
    exist yet; ConflictError if the id was used for another version. After UnavailableError the
    version may or may not be restored: repeat the call with the id in the message.
    """
    _check_id(restore_id)
    table = instance.table(table_name)
    with table.state.reading() as newest:
        earlier = newest.jobs.applied(restore_id, RestoreVersion.kind) if restore_id else None
    if earlier is not None and not isinstance(to, int):
        # An age selects another version each time.
        return VersionChange(table_name, earlier.id, earlier.number, None, True)
    if earlier is None:
        with table.state.reading(to) as state:
            state.check_has_rows()
            to = state.version
    assert isinstance(to, int)
    transaction = RestoreVersion(to, id=restore_id or new_transaction_id())
    outcome = _commit(table, transaction)
    if outcome.refused:
        raise ConflictError(f"cannot restore table {table_name!r}: {outcome.reason}")
    return _describe(table, transaction, outcome, to)


def reinitialise_table(
    instance: Instance,
    table_name: str,
    request_id: str | None = None,
    split_points: Sequence[object] = (),
) -> VersionChange:
    """Removes all rows of a table in one transaction; partitions, schema and properties stay.

    Then leaves are split at those of the split points that divide one. The version before can be
    restored while it is readable. Ids, and errors that leave the outcome unknown, are as for
    `restore_table`. InvalidRequestError for split points that are not valid.
    """
    _check_id(request_id)
    table = instance.table(table_name)
    with table.state.reading() as state:
        tree_from_split_points(state.schema, split_points)  # checks them
        field = state.schema.row_keys[0]
    transaction = ReinitialiseTable(id=request_id or new_transaction_id())
    outcome = _commit(table, transaction)
    if outcome.refused:
        raise ConflictError(f"cannot reinitialise table {table_name!r}: {outcome.reason}")
    _split_leaves(table, [check_key_value(field, point) for point in split_points])
    return _describe(table, transaction, outcome)


def _split_leaves(table: OpenTable, points: Sequence[KeyValue]) -> None:
    """Splits leaves at the points, ascending values of the first row key field. Idempotent."""
    while True:
        splits = []
        with table.state.reading() as state:
            for leaf in state.partitions.leaves():
                within = leaf.region.ranges[0]
                low = bisect_right(points, within.min)
                high = len(points) if within.max is None else bisect_left(points, within.max)
                if low < high:
                    some = _choose_evenly(points[low:high])
                    splits.append(SplitPartition(leaf.id, tuple(subtree(leaf, 0, some))))
        if not splits:
            return
        for split, outcome in zip(splits, table.state.commit(*splits), strict=True):
            check_outcome(split, outcome)


def _choose_evenly(points: Sequence[KeyValue]) -> Sequence[KeyValue]:
    """Returns as many of the points as one transaction can split a leaf at."""
    if len(points) <= _SPLIT_POINTS_MAX:
        return points
    parts = _SPLIT_POINTS_MAX + 1
    return [points[position * len(points) // parts] for position in range(1, parts)]


def undo_job(
    instance: Instance, job_id: str, table_name: str | None = None, undo_id: str | None = None
) -> VersionChange:
    """Takes back what an ingest or import added, in one transaction. The job's id stays used.

    Without a table it looks for the job in all tables. Nothing is left to do if none of the job's
    rows is in the table. NotFoundError if no table has the job; InvalidRequestError if several
    have it, and if a compaction has merged its rows with others.
    """
    _check_id(undo_id)
    table = instance.table(table_name or _find_job_table(instance, job_id))
    with table.state.reading() as state:
        job = state.jobs.added_files(job_id)
    if job is None:
        raise NotFoundError(
            f"table {table.ref.name!r} has no ingest or import with the id {job_id!r} (ids are "
            "kept for 30 days)"
        )
    transaction = UndoJob(job_id, id=undo_id or new_transaction_id())
    outcome = _commit(table, transaction)
    if outcome.refused:
        hint = _hint_restore(table, job.number - 1)
        raise InvalidRequestError(f"cannot undo job {job_id}: {outcome.reason}; {hint}")
    return _describe(table, transaction, outcome)


def _hint_restore(table: OpenTable, before: int) -> str:
    try:
        with table.state.reading(before) as state:
            state.check_has_rows()
    except InvalidRequestError:
        return f"version {before}, before the job, is not readable"
    return (
        f"sleeper table restore {table.ref.name} --to {before} restores the version before the "
        "job, without all later changes"
    )


def _find_job_table(instance: Instance, job_id: str) -> str:
    tables = [OpenTable(instance, ref) for ref in instance.tables.index.list()]
    tracker = instance.jobs.tracker
    # The tracker answers without the table's state, but may lack a job.
    tracked = [t for t in tables if not tracker.unknown(t.ref.id, [job_id])]
    matches = [t.ref.name for t in tracked or tables if _has_job(t, job_id)]
    if not matches:
        raise NotFoundError(
            f"no table has an ingest or import with the id {job_id!r} (ids are kept for 30 days)"
        )
    if len(matches) > 1:
        raise InvalidRequestError(f"job {job_id!r} is in several tables: {', '.join(matches)}")
    return matches[0]


def _has_job(table: OpenTable, job_id: str) -> bool:
    with table.state.reading() as state:
        return state.jobs.added_files(job_id) is not None


def _commit(table: OpenTable, transaction: Transaction) -> Outcome:
    table.check_active()
    try:
        (outcome,) = table.state.commit(transaction)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}; not confirmed: repeating it with the id {transaction.id!r} changes the "
            "table once"
        ) from error
    return outcome


def _describe(
    table: OpenTable, transaction: Transaction, outcome: Outcome, version: int | None = None
) -> VersionChange:
    done = outcome.status is Status.ALREADY_DONE
    return VersionChange(table.ref.name, transaction.id, outcome.number, version, done)


def _check_id(request_id: str | None) -> None:
    if request_id is None:
        return
    if not request_id or len(request_id) > _ID_CHARACTERS_MAX or not request_id.isprintable():
        raise InvalidRequestError(
            f"invalid id of a request: {request_id!r:.250} (expected 1 to {_ID_CHARACTERS_MAX} "
            "printable characters)"
        )
