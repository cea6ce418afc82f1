"""Runs one compaction job: merge its files into one, commit that in their place."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.clock import Clock, system_clock
from sleeper.compaction.job import CompactionJob, RunRecord
from sleeper.compaction.lease import Lease
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.merge.bound_iterator import TableIterators, shown_key
from sleeper.datafiles.merge.damage import find_damage
from sleeper.datafiles.merge.plan import MergeInput, MergeRequest
from sleeper.datafiles.merge.processing import ProcessingStep
from sleeper.datafiles.remote.extract_files import Extract
from sleeper.datafiles.remote.extracts import fetched
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
from sleeper.files.data_file import DataFile
from sleeper.jobs.tracker import JobTracker
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema
from sleeper.statestore.commit_message import CommitRun, commit_now, not_refused
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.commit_compaction import CommitCompaction
from sleeper.statestore.transactions.compaction_jobs import ShortenLeases
from sleeper.storage.location import DataRoot


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The rows of these files that lie in the partition, to be written as one file of it.

    They are filtered and aggregated as the table says. The time is that at which the job got
    its files: no version that can see the output is older, so that whatever was too old then
    is so for all of them.
    """

    table_id: str
    schema: Schema
    partition: Partition
    inputs: tuple[DataFile, ...]
    run_start_ms: int
    step: ProcessingStep

    def is_whole(self, file: DataFile) -> bool:
        """Whether every row of the file lies in the partition, so that none needs a look."""
        return self.partition.region.contains_bounds(file.smallest_key, file.largest_key)

    def wanted(self) -> list[tuple[DataFile, tuple[Region, ...] | None]]:
        """The files, and the regions whose rows are wanted of each; None for every row."""
        region = (self.partition.region,)
        return [(file, None if self.is_whole(file) else region) for file in self.inputs]

    def request(self, root: DataRoot, extracts: Mapping[str, Extract]) -> MergeRequest:
        """What the one merge is asked for. Extracts are read in their files' place."""
        inputs = []
        for file, regions in self.wanted():
            extract = extracts.get(file.path)
            if extract is None:
                inputs.append(MergeInput(root.url_of(file.path), regions, file.bytes))
            else:
                inputs.append(MergeInput(str(extract.path), regions, extract.bytes))
        return MergeRequest(self.schema, tuple(inputs), steps=(self.step,))


def write_output(
    job: MergeJob,
    root: DataRoot,
    engine: EngineSettings,
    settings: FileSettings,
    on_rows: Callable[[int], None] = lambda _: None,
) -> DataFile | None:
    """Writes the partition's rows of the job's files as one file of it, in bounded memory.

    The partition may be a leaf or not. None if there is no row. `on_rows` hears of rows, and
    stops the merge by raising. UnavailableError if the disk refuses.
    """
    target = WriteTarget(
        root, job.table_id, job.schema, (job.partition,), job.run_start_ms, settings, threads=1
    )
    try:
        with fetched(root, job.schema, job.wanted(), engine.spill_folder) as extracts:
            return write_merge(job.request(root, extracts), engine, target, on_rows)
    except OSError as error:
        raise UnavailableError(f"cannot write in partition {job.partition.id}: {error}") from error


def damaged_input(
    job: MergeJob, root: DataRoot, settings: EngineSettings, error: SleeperError
) -> DataError:
    """The error with the file named that cannot be read or has not its rows."""
    found = find_damage(job.schema, job.inputs, root, settings)
    return found or DataError(f"partition {job.partition.id}: {error}")


logger = logging.getLogger(__name__)
# How long files of a job whose iterator failed stay with it: what fails is not tried over and
# over, and other files of the leaf are not held up for long.
_PAUSE_AFTER_FAILURE_MS = 300_000


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How a worker runs jobs. `task_id` names the worker in the tracker."""

    engine: EngineSettings
    files: FileSettings = field(default_factory=FileSettings)
    lease_seconds: float = 3600
    task_id: str | None = None
    iterators: TableIterators = field(default_factory=TableIterators)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What became of a run. `output` is None if no row was left, or nothing was left to do.

    `queued` says that its commit waits for the committer.
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
    """Runs the job and commits its output; durable on return, so the message may be deleted.

    A job whose commit was applied is already done. `on_rows` hears of progress. `commit` may
    queue the commit; without it, it is done here. Errors,
    each told to the tracker: StateMovedOnError if the job does not hold its files any more
    (delete the message); DataError if an input is damaged or gone (delete the message: the
    files stay assigned until the lease runs out, so that a damaged file is not tried every
    minute); UserCodeError if the table's iterator failed (let the message return: it may come
    as often as the queue allows; the lease is cut to five minutes, and then the files are
    free); UnavailableError and ConflictError (let the message return).
    """
    record = RunRecord(tracker, job.table_id, job.id, settings.task_id, clock)
    if _is_committed(store, job.id, record):
        return CompactionResult(already_done=True)
    try:
        with Lease(store, job.id, settings.lease_seconds, clock) as lease:
            record.started()
            merge = _merge_of(job, store, clock(), settings.iterators)
            output, rows_read = _write(job, merge, store, root, settings, lease, on_rows)
            is_queued = _commit(merge, output, job, record, commit or commit_now(store))
    except StateMovedOnError as error:
        if _is_committed(store, job.id, record):
            return CompactionResult(already_done=True)
        record.failed(str(error))
        raise
    except UserCodeError as error:
        record.failed(str(error))
        with store.reading() as state:
            expiry_ms = state.moment(clock()) + _PAUSE_AFTER_FAILURE_MS
        store.commit(ShortenLeases((job.id,), expiry_ms))
        raise
    except Exception as error:
        record.failed(str(error))
        raise
    rows_written = output.rows if output else 0
    record.finished(rows_read, rows_written, is_committed=not is_queued)
    return CompactionResult(output, rows_read, rows_written, queued=is_queued)


def _commit(
    merge: MergeJob,
    output: DataFile | None,
    job: CompactionJob,
    record: RunRecord,
    commit: CommitRun,
) -> bool:
    """True if the commit is only queued. StateMovedOnError if it is refused."""
    inputs = tuple(file.path for file in merge.inputs)
    transaction = CommitCompaction(job.id, merge.partition.id, inputs, output, merge.run_start_ms)
    return not_refused(transaction, commit(record.run, transaction)) is None


def _write(
    job: CompactionJob,
    merge: MergeJob,
    store: StateStore,
    root: DataRoot,
    settings: CompactionSettings,
    lease: Lease,
    on_rows: Callable[[int], None],
) -> tuple[DataFile | None, int]:
    """The output, and how many rows were read for it."""
    rows_read = 0

    def heard(rows: int) -> None:
        nonlocal rows_read
        lease.check()
        rows_read += rows
        on_rows(rows)

    try:
        output = write_output(merge, root, settings.engine, settings.files, heard)
        _check_rows(merge, rows_read)
        _check_keys(merge, output)
    except InvalidRequestError as error:
        # The iterator took its config when it was set, and does not now.
        raise UserCodeError(str(error)) from error
    except (DataError, StateMovedOnError) as error:
        _check_held(job, store)
        # So whatever cannot be read or found is damage.
        raise damaged_input(merge, root, settings.engine, error) from error
    lease.check()
    if not merge.step.processing.keeps_rows:
        # What came out of the merge is fewer; of files read in part that is all we know.
        rows_read = _rows_held(merge) or rows_read
    return output, rows_read


def _merge_of(
    job: CompactionJob, store: StateStore, clock_ms: int, iterators: TableIterators
) -> MergeJob:
    with store.reading() as state:
        held = state.jobs.get(job.id)
        if held is None:
            raise StateMovedOnError(f"compaction job {job.id} holds no files any more")
        found = [state.files.get(path) for path in held.inputs]
        inputs = tuple(file for file in found if file is not None)
        partition = state.partitions.get(held.partition_id)
        start_ms = state.run_start(clock_ms)
        try:
            iterator = iterators.bind(state.processing.iterator)
        except InvalidRequestError as error:
            raise UserCodeError(str(error)) from error
        step = ProcessingStep(state.processing, held.assigned_time_ms, iterator)
        return MergeJob(job.table_id, state.schema, partition, inputs, start_ms, step)


def _check_held(job: CompactionJob, store: StateStore) -> None:
    with store.reading() as state:
        if state.jobs.get(job.id) is None:
            raise StateMovedOnError(f"compaction job {job.id} holds no files any more")


def _check_rows(merge: MergeJob, rows_read: int) -> None:
    """Whole files hold as many rows as the state says, or something was lost on the way.

    How many were filtered or aggregated is not counted.
    """
    expected = _rows_held(merge)
    if merge.step.processing.keeps_rows and expected is not None and rows_read != expected:
        raise DataError(f"{rows_read} rows were read: the files hold {expected}")


def _check_keys(merge: MergeJob, output: DataFile | None) -> None:
    """Rows of other partitions' keys would never be found again."""
    iterator = merge.step.iterator
    if iterator is not None and output is not None and not merge.is_whole(output):
        raise iterator.failure(
            f"it gave row keys from {shown_key(output.smallest_key)} to "
            f"{shown_key(output.largest_key)}, which the rows of partition {merge.partition.id} "
            "do not have"
        )


def _rows_held(merge: MergeJob) -> int | None:
    """How many rows the inputs hold; None if some of them are read in part only."""
    if all(merge.is_whole(file) for file in merge.inputs):
        return sum(file.rows for file in merge.inputs)
    return None


def _is_committed(store: StateStore, job_id: str, record: RunRecord) -> bool:
    with store.reading() as state:
        applied = state.jobs.applied(job_id, CommitCompaction.kind)
    if applied is not None:
        record.committed_earlier(applied.time_ms)
    return applied is not None
