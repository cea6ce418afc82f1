"""Runs one compaction job: merges its files into one and commits it in their place."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sleeper.clock import Clock, system_clock
from sleeper.compaction.job import CompactionJob, Lease
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.deletes import DeletedRows, OnDropped, open_deleted
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.steps import ProcessingStep, TableIterators, format_key
from sleeper.datafiles.merge.stored import Stored, with_hidden
from sleeper.datafiles.remote.extracts import Extract, fetch_inputs
from sleeper.datafiles.verification import find_damage
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.merged import write_merge
from sleeper.datafiles.write.partitioned import WriteTarget
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    UserCodeError,
)
from sleeper.files import SIDECAR_SUFFIXES, DataFile
from sleeper.jobs.event import JobKind, JobRunRef, new_run_id
from sleeper.jobs.tracker import JobTracker
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.runs.commit import CommitRun, commit_now
from sleeper.runs.tracking import RunTracker
from sleeper.schema.model import Schema
from sleeper.statestore.reading.delete_queries import Delete, find_deleted
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction, ShortenLeases
from sleeper.statestore.transactions.transaction import check_outcome
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)
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


def run_compaction(
    job: CompactionJob,
    store: StateStore,
    root: DataRoot,
    tracker: JobTracker,
    settings: CompactionSettings,
    clock: Clock = system_clock,
    on_rows: Callable[[int], None] = lambda _: None,
    commit: CommitRun | None = None,
) -> CompactionResult:
    """Runs the job and commits its output, durably, so that the message may be deleted.

    A job with an applied commit is already done. `on_rows` receives row counts as progress.
    `commit` may queue the commit; the default commits here. Every error is recorded in the
    tracker:

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
            output, rows_read = _write(job, merge, store, root, settings, lease, on_rows)
            inputs = tuple(file.path for file in merge.inputs)
            transaction = CommitCompaction(
                job.id, merge.partition.id, inputs, output, merge.run_start_ms
            )
            outcome = (commit or commit_now(store))(run, transaction)
            is_queued = outcome is None
            if outcome is not None:
                check_outcome(transaction, outcome)
    except StateMovedOnError as error:
        if _is_committed(store, job.id, run_tracker):
            return CompactionResult(already_done=True)
        run_tracker.record_failure(error)
        raise
    except UserCodeError as error:
        run_tracker.record_failure(error)
        with store.reading() as state:
            expiry_ms = state.moment(clock()) + _FAILED_ITERATOR_LEASE_MS
        store.commit(ShortenLeases((job.id,), expiry_ms))
        raise
    except Exception as error:
        run_tracker.record_failure(error)
        raise
    rows_written = output.rows if output else 0
    run_tracker.try_record_result(rows_read, rows_written, is_committed=not is_queued)
    return CompactionResult(output, rows_read, rows_written, queued=is_queued)


def _is_committed(store: StateStore, job_id: str, run_tracker: RunTracker) -> bool:
    with store.reading() as state:
        applied = state.jobs.applied(job_id, CommitCompaction.kind)
    if applied is not None:
        run_tracker.try_record_earlier_commit(applied.time_ms)
    return applied is not None


@dataclass(frozen=True, slots=True)
class MergeJob:
    """A merge of the rows of a partition into one file.

    `step` is the table's processing at the time of the assignment. No version that sees the
    output is older, so every version filters the rows that are too old then. `deletes` are those
    at the assignment, up to which the output counts as applied. A merge of latest rows applies no
    processing, or a dropped row would uncover an older one elsewhere. `oldest_beneath` is the
    oldest row outside of the inputs that a tombstone may hide, None if there is none.
    """

    table_id: str
    schema: Schema
    partition: Partition
    inputs: tuple[DataFile, ...]
    run_start_ms: int
    step: ProcessingStep
    deletes: tuple[Delete, ...] = ()
    oldest_beneath: int | None = None

    @property
    def row_count(self) -> int | None:
        """The number of rows of the inputs, None if an input is partly outside the partition."""
        if all(map(self.is_inside, self.inputs)):
            return sum(file.rows for file in self.inputs)
        return None

    def is_inside(self, file: DataFile) -> bool:
        """Returns whether every row of the file is in the partition."""
        return self.partition.region.contains_bounds(file.smallest_key, file.largest_key)

    def regions(self) -> list[tuple[DataFile, tuple[Region, ...] | None]]:
        """Returns each file with the regions of its rows to read, None for every row."""
        region = (self.partition.region,)
        return [(file, None if self.is_inside(file) else region) for file in self.inputs]

    def request(
        self,
        root: DataRoot,
        extracts: Mapping[str, Extract],
        key_files: KeyFileCache,
    ) -> MergeRequest:
        """Returns the merge, which reads extracts in place of their files."""
        inputs = []
        opened: dict[int, DeletedRows] = {}
        for file, regions in self.regions():
            extract = extracts.get(file.path)
            url = root.url_of(file.path) if extract is None else str(extract.path)
            size = file.bytes if extract is None else extract.bytes
            hiding = find_deleted(file, self.deletes)
            first = hiding[0].number if hiding else None
            if first is not None and first not in opened:
                deleted = [(d.region, d.keys) for d in self.deletes if d.number >= first]
                opened[first] = open_deleted(self.schema, deleted, root, key_files)
            rows = None if first is None else opened[first]
            version, number = file.schema_version, file.number
            inputs.append(MergeInput(url, regions, size, rows, version, number))
        return MergeRequest(self.schema, tuple(inputs), steps=self.steps, stored=self.stored)

    @property
    def steps(self) -> tuple[ProcessingStep, ...]:
        """The processing that the merge applies."""
        return () if self.schema.latest is not None else (self.step,)

    @property
    def stored(self) -> Stored | None:
        """The hidden columns of the output. Tombstones that hide no row are dropped."""
        if self.schema.latest is None:
            return None
        numbers = {file.number for file in self.inputs}
        has_numbers = None in numbers or len(numbers) > 1
        return Stored(has_numbers, self.oldest_beneath is not None, self.oldest_beneath or 0)

    @property
    def output_schema(self) -> Schema:
        """The fields of the output."""
        stored = self.stored
        if stored is None:
            return self.schema
        return with_hidden(self.schema, stored.has_numbers, stored.has_tombstones)


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
    tombstones are kept. If the partition was split, other files may lie in its leaves.
    """
    latest = state.schema.latest
    if latest is None:
        return None
    if latest.by is not None:
        return 0
    own = {file.path for file in inputs}
    return min(
        (
            file.smallest_number or 0
            for leaf in state.partitions.leaves_overlapping([partition.region])
            for file in state.files.leaf_files(leaf.id, leaf.region)
            if file.path not in own
        ),
        default=None,
    )


def _write(
    job: CompactionJob,
    merge: MergeJob,
    store: StateStore,
    root: DataRoot,
    settings: CompactionSettings,
    lease: Lease,
    on_rows: Callable[[int], None],
) -> tuple[DataFile | None, int]:
    """Returns the output and the number of rows read."""
    rows_read = rows_deleted = 0

    def count_rows(rows: int) -> None:
        nonlocal rows_read
        lease.check()
        rows_read += rows
        on_rows(rows)

    def set_deleted(rows: int) -> None:
        nonlocal rows_deleted
        rows_deleted = rows

    try:
        output = write_output(merge, root, settings.engine, settings.files, count_rows, set_deleted)
        _check_rows(merge, rows_read, rows_deleted)
        _check_keys(merge, output)
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


def write_output(
    job: MergeJob,
    root: DataRoot,
    engine: EngineSettings,
    settings: FileSettings,
    on_rows: Callable[[int], None] = lambda _: None,
    on_dropped: OnDropped = lambda _: None,
) -> DataFile | None:
    """Writes the merged file, in bounded memory. None if there is no row.

    `on_rows` receives row counts, and stops the merge by raising. `on_dropped` receives the number
    of deleted rows. UnavailableError if the disk fails.
    """
    key_files = KeyFileCache(engine.key_cache_bytes)
    target = WriteTarget(
        root,
        job.table_id,
        job.output_schema,
        (job.partition,),
        job.run_start_ms,
        settings,
        threads=1,
    )
    output: DataFile | None = None
    try:
        with fetch_inputs(root, job.schema, job.regions(), engine.spill_folder) as extracts:
            request = job.request(root, extracts, key_files)
            output = write_merge(request, engine, target, on_rows, on_dropped)
    except BaseException as error:  # an interrupt too
        if output is not None:
            # An input that was verified during the merge is damaged.
            with contextlib.suppress(SleeperError):
                root.delete([output.path + suffix for suffix in ("", *SIDECAR_SUFFIXES)])
        if isinstance(error, OSError):
            raise UnavailableError(
                f"cannot write in partition {job.partition.id}: {error}"
            ) from error
        raise
    return output


def _check_rows(merge: MergeJob, rows_read: int, rows_deleted: int) -> None:
    """Checks that no row of whole files was lost. Filters and aggregations prevent the check."""
    expected = merge.row_count
    if expected is None or not all(step.processing.keeps_rows for step in merge.steps):
        return
    if rows_read + rows_deleted != expected:
        deleted = f" and {rows_deleted} deleted or replaced" if rows_deleted else ""
        raise DataError(f"read {rows_read} rows{deleted} (expected {expected})")


def _check_keys(merge: MergeJob, output: DataFile | None) -> None:
    """Checks an iterator's keys, because queries would not find rows outside the partition."""
    iterator = merge.step.iterator
    if iterator is not None and output is not None and not merge.is_inside(output):
        raise iterator.failure(
            f"row keys from {format_key(output.smallest_key)} to "
            f"{format_key(output.largest_key)} are outside partition "
            f"{merge.partition.id}"
        )
