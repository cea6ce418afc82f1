"""Runs one compaction job: merges its files into one and commits it in their place."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from sleeper.clock import Clock, system_clock
from sleeper.compaction.job import CompactionJob
from sleeper.compaction.merge_job import MergeJob, check_keys, check_rows, write_output
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.steps import ProcessingStep, TableIterators
from sleeper.datafiles.verification import find_damage
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UserCodeError,
)
from sleeper.files import DataFile
from sleeper.jobs.event import JobKind, JobRunRef, new_run_id
from sleeper.jobs.tracker import JobTracker
from sleeper.partitions.partition import Partition
from sleeper.renewal import Renewal
from sleeper.runs.commit import CommitRun, commit_now
from sleeper.runs.tracking import RunTracker
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import (
    CommitCompaction,
    RenewLeases,
    ShortenLeases,
)
from sleeper.statestore.transactions.transaction import check_outcome
from sleeper.storage.location import DataRoot

# The lease of a job whose iterator failed. It limits how often the job is retried and how long
# the files of its leaf are locked.
_FAILED_ITERATOR_LEASE_MS = 300_000


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """The settings of a worker. `task_id` is the worker's id in the tracker."""

    engine: EngineSettings
    files: FileSettings = field(default_factory=FileSettings)
    lease_seconds: float = 3600
    task_id: str | None = None
    iterators: TableIterators = field(default_factory=TableIterators)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a run. `output` is None if no row is left, or the job was already done.

    `queued` is true if the commit waits for the committer.
    """

    output: DataFile | None = None
    rows_read: int = 0
    rows_written: int = 0
    already_done: bool = False
    queued: bool = False


_LOST = (DataError, InvalidRequestError, NotFoundError, StateMovedOnError)


class Lease:
    """Renews the job's lease in the background, at a third of its time, within a `with` block.

    Entering renews at once, because the job may have waited long in its queue:
    StateMovedOnError if it no longer holds its files.
    """

    def __init__(self, store: StateStore, job_id: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._job_id = job_id
        self._seconds = seconds
        self._clock = clock
        # A failed renewal is repeated before the lease expires.
        self._renewal = Renewal(
            "lease renewal", self._renew, seconds / 3, ends_on=_LOST, extra={"job_id": job_id}
        )

    def __enter__(self) -> Self:
        self._renew()
        self._renewal.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._renewal.__exit__(*error)

    def check(self) -> None:
        """Raises StateMovedOnError if the job has been released."""
        if self._renewal.error is not None:
            raise self._renewal.error

    def _renew(self) -> None:
        with self._store.reading() as state:
            expiry_ms = state.moment(self._clock()) + int(self._seconds * 1000)
        self._store.commit_or_raise(RenewLeases((self._job_id,), expiry_ms))


def run_compaction(
    job: CompactionJob,
    store: StateStore,
    root: DataRoot,
    tracker: JobTracker,
    settings: CompactionSettings,
    clock: Clock = system_clock,
    commit: CommitRun | None = None,
) -> CompactionResult:
    """Runs the job and commits its output, durably, so that the message may be deleted.

    A job with an applied commit is already done. `commit` may queue the commit; the default commits
    here. Every error is recorded in the tracker:

    - StateMovedOnError: the job no longer holds its files. Delete the message.
    - DataError: an input is damaged or missing. Delete the message. The files stay assigned
      until the lease expires, which limits retries of a damaged file.
    - UserCodeError: the table's iterator failed. Let the message return. The lease is shortened
      to five minutes.
    - UnavailableError, ConflictError: let the message return.
    """
    run = JobRunRef(job.table_id, job.id, JobKind.COMPACTION, new_run_id(), settings.task_id)
    run_tracker = RunTracker(tracker, clock, run)
    if _is_committed(store, job.id, run_tracker):
        return CompactionResult(already_done=True)
    try:
        with Lease(store, job.id, settings.lease_seconds, clock) as lease:
            run_tracker.try_record_start()
            merge = _plan_merge(job, store, clock(), settings.iterators)
            output, rows_read = _write(job, merge, store, root, settings, lease)
            inputs = tuple(file.path for file in merge.inputs)
            leaf, start_ms = merge.partition.id, merge.run_start_ms
            transaction = CommitCompaction(job.id, leaf, inputs, output, start_ms)
            outcome = (commit or commit_now(store))(run, transaction)
            if outcome is not None:
                check_outcome(transaction, outcome)
    except Exception as error:
        if isinstance(error, StateMovedOnError) and _is_committed(store, job.id, run_tracker):
            return CompactionResult(already_done=True)
        run_tracker.record_failure(error)
        if isinstance(error, UserCodeError):
            with store.reading() as state:
                expiry_ms = state.moment(clock()) + _FAILED_ITERATOR_LEASE_MS
            store.commit(ShortenLeases((job.id,), expiry_ms))
        raise
    rows_written = output.rows if output else 0
    run_tracker.try_record_result(rows_read, rows_written, is_committed=outcome is not None)
    return CompactionResult(output, rows_read, rows_written, queued=outcome is None)


def _is_committed(store: StateStore, job_id: str, run_tracker: RunTracker) -> bool:
    with store.reading() as state:
        applied = state.jobs.applied(job_id, CommitCompaction.kind)
    if applied is not None:
        run_tracker.try_record_earlier_commit(applied.time_ms)
    return applied is not None


def _plan_merge(
    job: CompactionJob, store: StateStore, clock_ms: int, iterators: TableIterators
) -> MergeJob:
    with store.reading() as state:
        held = state.jobs.get(job.id)
        if held is None:
            raise StateMovedOnError(f"compaction job {job.id} no longer holds its files")
        files = [state.files.get(path) for path in held.inputs]
        inputs = tuple(file for file in files if file is not None)
        partition = state.partitions.get(held.partition_id)
        start_ms = state.run_start(clock_ms)
        try:
            iterator = iterators.bind(state.processing.iterator)
        except InvalidRequestError as error:
            raise UserCodeError(str(error)) from error
        step = ProcessingStep(state.processing, held.assigned_time_ms, iterator)
        deletes = tuple(state.deletes.overlapping(partition.region, held.assigned_number))
        oldest = _find_oldest_beneath(state, partition, inputs)
        return MergeJob(
            job.table_id, state.schema, partition, inputs, start_ms, step, deletes, oldest
        )


def _find_oldest_beneath(
    state: TableState, partition: Partition, inputs: Sequence[DataFile]
) -> int | None:
    """Returns the smallest number of a row that a tombstone of the inputs may hide, or None.

    Rows of later commits are newer than the tombstones. By a field they may be older, so that all
    tombstones are kept. Files of partitions above and below may have rows of the same keys.
    """
    latest = state.schema.latest
    if latest is None:
        return None
    if latest.by is not None:
        return 0
    return state.files.smallest_number(
        partition.id, partition.region, [file.path for file in inputs]
    )


def _write(
    job: CompactionJob,
    merge: MergeJob,
    store: StateStore,
    root: DataRoot,
    settings: CompactionSettings,
    lease: Lease,
) -> tuple[DataFile | None, int]:
    """Returns the output and the number of rows read."""
    rows_read = rows_deleted = 0

    def count_rows(rows: int) -> None:
        nonlocal rows_read
        lease.check()
        rows_read += rows

    def set_deleted(rows: int) -> None:
        nonlocal rows_deleted
        rows_deleted = rows

    try:
        output = write_output(merge, root, settings.engine, settings.files, count_rows, set_deleted)
        check_rows(merge, rows_read, rows_deleted)
        check_keys(merge, output)
    except InvalidRequestError as error:
        # The iterator accepted its configuration when it was set and rejects it now.
        raise UserCodeError(str(error)) from error
    except (DataError, StateMovedOnError) as error:
        with store.reading() as state:
            if state.jobs.get(job.id) is None:
                raise StateMovedOnError(
                    f"compaction job {job.id} no longer holds its files"
                ) from error
        # The job holds its files, so an unreadable or missing one is damage.
        damage = find_damage(merge.schema, merge.inputs, root, settings.engine)
        raise damage or DataError(f"partition {merge.partition.id}: {error}") from error
    lease.check()
    if merge.stored is not None or not merge.step.processing.keeps_rows:
        # `rows_read` counts rows after filters and aggregations. It is the only number known if
        # a file is read in part.
        rows_read = merge.row_count or rows_read
    return output, rows_read
