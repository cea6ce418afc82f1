"""Creates the compaction jobs of one table: release, push down, select, assign, dispatch.

Each step is an entry of the log, or repeats harmlessly, so that a creation that dies
anywhere is followed by one that goes on: assigned jobs that were never dispatched are
dispatched by the next.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sleeper.clock import Clock, iso_time, system_clock
from sleeper.compaction.job import CompactionJob, new_compaction_job_id
from sleeper.compaction.strategy import Selection, select, selector_of
from sleeper.files.data_file import DataFile, FileReference
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.tracker import JobTracker
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.properties.engine import COMPACTION_LEASE_SECONDS
from sleeper.properties.table import COMPACTION_JOBS_MAX
from sleeper.properties.values import TableProperties
from sleeper.schema.model import Schema, next_key_value
from sleeper.statestore.reading.job_queries import AssignedJob
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.commit_compaction import CommitCompaction
from sleeper.statestore.transactions.compaction_jobs import AssignFiles, JobAssignment, ReleaseJobs
from sleeper.statestore.transactions.push_down import PushDownReferences, ReferenceMove
from sleeper.tables.table_ref import TableId
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode

_JOBS_AT_A_TIME = 500
SendMessages = Callable[[Sequence[str]], object]
"""Puts messages on the queue of compaction jobs, durably."""


def dispatch(
    jobs: Sequence[CompactionJob],
    tracker: JobTracker,
    send: SendMessages,
    clock: Clock,
) -> None:
    """Sends the jobs and records that they were created, some hundred at a time."""
    for start in range(0, len(jobs), _JOBS_AT_A_TIME):
        some = jobs[start : start + _JOBS_AT_A_TIME]
        send([job.to_json() for job in some])
        now_ms = clock()
        tracker.record(*(_creation(job, now_ms) for job in some))


def _creation(job: CompactionJob, now_ms: int) -> JobEvent:
    return JobEvent(
        job.table_id,
        job.id,
        JobKind.COMPACTION,
        JobStep.CREATED,
        max(now_ms, job.created_ms),
        inputs=len(job.inputs),
    )


def undispatched(table_id: TableId, store: StateStore, tracker: JobTracker) -> list[CompactionJob]:
    """Jobs that hold files, but that the tracker has never heard of."""
    found: list[CompactionJob] = []
    with store.reading() as state:
        assigned = state.jobs.assigned()
        while some := list(islice(assigned, _JOBS_AT_A_TIME)):
            unknown = set(tracker.unknown(table_id, [job.id for job in some]))
            found += (
                CompactionJob(j.id, table_id, j.partition_id, j.inputs, j.assigned_time_ms)
                for j in some
                if j.id in unknown
            )
    return found


_JOBS_PER_ENTRY = 500


def release_expired_jobs(
    table_id: TableId, store: StateStore, tracker: JobTracker, clock: Clock
) -> int:
    """Frees their files by entries and records them as failed. Returns how many.

    A job that was renewed or committed meanwhile is none of them.
    """
    with store.reading() as state:
        expired = state.jobs.expired(state.moment(clock()))
    released = 0
    for start in range(0, len(expired), _JOBS_PER_ENTRY):
        some = expired[start : start + _JOBS_PER_ENTRY]
        store.commit(ReleaseJobs(tuple(job.id for job in some)))
        freed = _freed(store, some)
        now_ms = clock()
        tracker.record(*(_failure(table_id, job, now_ms) for job in freed))
        released += len(freed)
    return released


def _freed(store: StateStore, jobs: list[AssignedJob]) -> list[AssignedJob]:
    with store.reading() as state:
        return [
            job
            for job in jobs
            if state.jobs.get(job.id) is None
            and state.jobs.applied(job.id, CommitCompaction.kind) is None
        ]


def _failure(table_id: TableId, job: AssignedJob, now_ms: int) -> JobEvent:
    reason = f"its lease ran out at {iso_time(job.lease_expiry_ms)}: its files were released"
    return JobEvent(table_id, job.id, JobKind.COMPACTION, JobStep.FAILED, now_ms, reasons=(reason,))


_REFERENCES_PER_READ = 500
_REFERENCES_PER_ENTRY = 2_000


def push_down_references(store: StateStore) -> int:
    """Pushes down all that are not assigned. Returns how many references went.

    File by file, in entries of some thousand new references. What cannot move now, because
    another writer was first, is left for the next time.
    """
    moved = 0
    while True:
        with store.reading() as state:
            moves = [
                _move(state, file, reference)
                for file, reference in state.files.on_split_partitions(_REFERENCES_PER_READ)
            ]
        applied = 0
        for entry in _entries_push_down(moves):
            (outcome,) = store.commit(PushDownReferences(entry))
            applied += 0 if outcome.number is None else len(entry)
        moved += applied
        # Where nothing went, asking again would give the same references.
        if len(moves) < _REFERENCES_PER_READ or not applied:
            return moved


def _move(state: TableState, file: DataFile, reference: FileReference) -> ReferenceMove:
    source = state.partitions.get(reference.partition_id).region
    keys = _region_of_bounds(state.schema, file).intersect(source)
    leaves = state.partitions.leaves_overlapping([keys] if keys is not None else [])
    rows = _evenly(reference.rows, [leaf.id for leaf in leaves])
    return ReferenceMove(file.path, reference.partition_id, rows)


def _region_of_bounds(schema: Schema, file: DataFile) -> Region:
    """The smallest region that holds every row of the file."""
    bounds = zip(schema.row_keys, file.smallest_key, file.largest_key, strict=True)
    return Region(tuple(Range(low, next_key_value(f, high)) for f, low, high in bounds))


def _evenly(rows: int, leaves: list[PartitionId]) -> tuple[tuple[PartitionId, int], ...]:
    """At least one row each: a reference of no rows would seem worth nothing to compact."""
    share, rest = divmod(rows, max(1, len(leaves)))
    return tuple(
        (leaf, max(1, share + (1 if place < rest else 0))) for place, leaf in enumerate(leaves)
    )


def _entries_push_down(moves: list[ReferenceMove]) -> Iterator[tuple[ReferenceMove, ...]]:
    entry: list[ReferenceMove] = []
    size = 0
    for move in moves:
        if entry and size + len(move.to) > _REFERENCES_PER_ENTRY:
            yield tuple(entry)
            entry, size = [], 0
        entry.append(move)
        size += len(move.to)
    if entry:
        yield tuple(entry)


logger = logging.getLogger(__name__)
_FILES_PER_ENTRY = 5_000


@dataclass(frozen=True, slots=True)
class CreationReport:
    """What one creation did. `dispatched_again` were assigned by one that died.

    `is_waiting`: it did nothing, because commits of earlier jobs still wait.
    """

    released: int
    references_pushed_down: int
    created: int
    dispatched_again: int
    is_waiting: bool = False

    @property
    def did_anything(self) -> bool:
        return any(
            (self.released, self.references_pushed_down, self.created, self.dispatched_again)
        )


def create_compaction_jobs(
    table_id: TableId,
    store: StateStore,
    properties: TableProperties,
    tracker: JobTracker,
    send: SendMessages,
    clock: Clock = system_clock,
    full: bool = False,
    code: UserCode = BUILT_IN_CODE,
) -> CreationReport:
    """Creates what jobs the table needs now; `full` takes all files of every leaf.

    The caller leaves offline tables alone. If the table's strategy fails, which is
    UserCodeError, no file is assigned; what came before repeats harmlessly.
    """
    released = release_expired_jobs(table_id, store, tracker, clock)
    again = undispatched(table_id, store, tracker)
    dispatch(again, tracker, send, clock)
    pushed_down = push_down_references(store)
    with store.reading() as state:
        room = properties.get(COMPACTION_JOBS_MAX) - state.jobs.count()
        selections = select(state.files.by_leaf(), selector_of(properties, code, full), room)
    lease_ms = properties.get(COMPACTION_LEASE_SECONDS) * 1000
    created = 0
    for entry in _entries(selections):
        jobs = assign(table_id, store, entry, lease_ms, clock)
        dispatch(jobs, tracker, send, clock)
        created += len(jobs)
    if released or again or created or pushed_down:
        logger.info(
            "compaction jobs created",
            extra={"table": table_id, "jobs": created, "released": released},
        )
    return CreationReport(released, pushed_down, created, len(again))


def assign(
    table_id: TableId,
    store: StateStore,
    selections: Sequence[Selection],
    lease_ms: int,
    clock: Clock = system_clock,
) -> list[CompactionJob]:
    """Gives each selection to a new job under a lease, in one entry. Returns those it was given.

    If another writer took some of the files meanwhile, each job is tried by itself.
    """
    with store.reading() as state:
        now_ms = state.moment(clock())
    jobs = [
        CompactionJob(new_compaction_job_id(), table_id, s.partition_id, s.inputs, now_ms)
        for s in selections
    ]
    claims = [JobAssignment(j.id, j.partition_id, j.inputs, now_ms + lease_ms) for j in jobs]
    (outcome,) = store.commit(AssignFiles(tuple(claims)))
    if not outcome.refused:
        return jobs
    if len(jobs) == 1:
        logger.info("no job: %s", outcome.reason, extra={"table": table_id})
        return []
    outcomes = store.commit(*(AssignFiles((claim,)) for claim in claims))
    return [job for job, o in zip(jobs, outcomes, strict=True) if not o.refused]


def _entries(selections: Sequence[Selection]) -> Iterator[list[Selection]]:
    entry: list[Selection] = []
    files = 0
    for selection in selections:
        if entry and files + len(selection.inputs) > _FILES_PER_ENTRY:
            yield entry
            entry, files = [], 0
        entry.append(selection)
        files += len(selection.inputs)
    if entry:
        yield entry
