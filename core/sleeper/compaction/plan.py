"""Creates compaction jobs: release, push down, select, assign, dispatch.

Each step is an entry of the log or idempotent. If a creation dies, the next one continues: it
dispatches jobs that are assigned but not dispatched.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from sleeper.clock import Clock, iso_time, system_clock
from sleeper.compaction.job import CompactionJob, new_compaction_job_id
from sleeper.compaction.push_down import batches, push_down_references
from sleeper.compaction.strategy import Selection, select
from sleeper.compaction.strategy_process import open_selector
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.queue import QueueName
from sleeper.jobs.tracker import JobTracker
from sleeper.properties.instance import COMPACTION_LEASE_SECONDS
from sleeper.properties.table import COMPACTION_JOBS_MAX
from sleeper.properties.values import TableProperties
from sleeper.runs.commit import is_committer_behind
from sleeper.runs.descent import table_descent
from sleeper.statestore.reading.descent import Descent
from sleeper.statestore.reading.newest_queries import AssignedJob
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
    ReleaseJobs,
)
from sleeper.tables import TableId, TableRef
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode

logger = logging.getLogger(__name__)

_JOBS_PER_BATCH = 500
_FILES_PER_ENTRY = 5_000

SendMessages = Callable[[Sequence[str]], object]
"""Sends messages to the queue of compaction jobs, durably."""


@dataclass(frozen=True, slots=True)
class CreationReport:
    """The result of one creation.

    `dispatched_again` counts jobs that an earlier creation assigned but did not dispatch.
    `is_waiting` is true if the creation was skipped because the committer is behind.
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


def compact_table(instance: Instance, name: str, full: bool = False) -> CreationReport:
    """Creates the compaction jobs that the table needs and sends them to the queue.

    `full` compacts all files, so that a key is in one. InvalidRequestError if the table is offline.
    """
    ref = instance.tables.index.find(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not compacted")
    return create_table_jobs(instance, ref, full)


def create_table_jobs(instance: Instance, ref: TableRef, full: bool = False) -> CreationReport:
    """Creates and sends the jobs of one table, none while the committer is behind."""
    if is_committer_behind(instance):
        logger.warning("compaction job creation skipped", extra={"table": ref.id})
        return CreationReport(0, 0, 0, 0, is_waiting=True)
    table = OpenTable(instance, ref)
    return create_compaction_jobs(
        ref.id,
        table.state,
        table.properties(),
        instance.jobs.tracker,
        instance.jobs.queue(QueueName.COMPACTION).send_all,
        instance.clock,
        full,
        instance.code,
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
    """Creates the jobs of an online table.

    If the table's strategy fails with UserCodeError, no file is assigned.
    """

    def choose(state: TableState, room: int) -> list[Selection]:
        selections = find_owed(state, properties, code, room, full)
        if full:
            selections += select_alone(state, selections, room - len(selections))
        return selections

    return _create_jobs(table_id, store, properties, tracker, send, clock, choose, full)


def find_owed(
    state: TableState,
    properties: TableProperties,
    code: UserCode,
    jobs_max: int,
    full: bool = False,
) -> list[Selection]:
    """Returns what the table's compaction owes, besides running jobs: the jobs to create next.

    UserCodeError if the table's strategy fails.
    """
    has_inner_jobs = table_descent(properties) is not None
    files = state.files
    groups = files.partition_references() if has_inner_jobs else files.leaf_references()
    with open_selector(properties, code, full) as selector:
        return select(groups, selector, jobs_max)


def create_rewrite_jobs(instance: Instance, ref: TableRef, paths: Sequence[str]) -> CreationReport:
    """Creates and sends a job for each reference to one of the files, unless it has one.

    An output has no row that was deleted before. Each job reads one file.
    """
    if is_committer_behind(instance):
        return CreationReport(0, 0, 0, 0, is_waiting=True)
    table = OpenTable(instance, ref)

    def choose(state: TableState, room: int) -> list[Selection]:
        unassigned = (
            Selection(each.partition_id, (each.path,))
            for each in state.files.file_references(paths)
            if each.job_id is None
        )
        return list(islice(unassigned, max(0, room)))

    send = instance.jobs.queue(QueueName.COMPACTION).send_all
    tracker, clock = instance.jobs.tracker, instance.clock
    return _create_jobs(ref.id, table.state, table.properties(), tracker, send, clock, choose)


def _create_jobs(
    table_id: TableId,
    store: StateStore,
    properties: TableProperties,
    tracker: JobTracker,
    send: SendMessages,
    clock: Clock,
    choose: Callable[[TableState, int], list[Selection]],
    full: bool = False,
) -> CreationReport:
    """Creates jobs of the selections that `choose` returns, at most the given number."""
    released = release_expired_jobs(table_id, store, tracker, clock)
    again = find_undispatched(table_id, store, tracker)
    dispatch(again, tracker, send, clock)
    pushed_down = push_down_references(store, _find_descent(store, properties, full))
    with store.reading() as state:
        selections = choose(state, properties.get(COMPACTION_JOBS_MAX) - state.jobs.count())
    lease_ms = properties.get(COMPACTION_LEASE_SECONDS) * 1000
    created = 0
    for batch in batches(selections, lambda each: len(each.inputs), _FILES_PER_ENTRY):
        jobs = assign(table_id, store, batch, lease_ms, clock)
        dispatch(jobs, tracker, send, clock)
        created += len(jobs)
    if released or again or created or pushed_down:
        logger.info(
            "compaction jobs created",
            extra={"table": table_id, "jobs": created, "released": released},
        )
    return CreationReport(released, pushed_down, created, len(again))


def _find_descent(store: StateStore, properties: TableProperties, full: bool) -> Descent | None:
    """Returns how far references go down; for a full compaction to the leaves, if some are there.

    Otherwise a key would be in a file of a leaf and in one of a partition above.
    """
    if full:
        with store.reading() as state:
            if state.files.has_nested_references():
                return None
    return table_descent(properties)


def select_alone(
    state: TableState, selections: Sequence[Selection], jobs_max: int
) -> list[Selection]:
    """Returns a selection of one file for each that is in no other and must be written again.

    It has deleted rows, or rows that are not aggregated yet.
    """
    selected = {(each.partition_id, path) for each in selections for path in each.inputs}
    pending = state.deletes.pending_references() if state.deletes.count() else iter(())
    has_aggregations = bool(state.processing.aggregations)
    unaggregated = state.files.unaggregated_references() if has_aggregations else iter(())
    alone: dict[tuple[str, str], Selection] = {}
    for partition, path in chain(pending, unaggregated):
        if len(alone) >= jobs_max:
            break
        if (partition, path) not in selected:
            alone[partition, path] = Selection(partition, (path,))
    return [*alone.values()]


def release_expired_jobs(
    table_id: TableId, store: StateStore, tracker: JobTracker, clock: Clock
) -> int:
    """Releases the files of expired jobs and records the jobs as failed. Returns their number.

    Jobs that are renewed or committed concurrently do not count.
    """
    with store.reading() as state:
        expired = state.jobs.expired(state.moment(clock()))
    released = 0
    for start in range(0, len(expired), _JOBS_PER_BATCH):
        batch = expired[start : start + _JOBS_PER_BATCH]
        store.commit(ReleaseJobs(tuple(job.id for job in batch)))
        with store.reading() as state:
            freed = [
                job
                for job in batch
                if state.jobs.get(job.id) is None
                and state.jobs.applied(job.id, CommitCompaction.kind) is None
            ]
        now_ms = clock()
        tracker.record(*(_expiry_event(table_id, job, now_ms) for job in freed))
        released += len(freed)
    return released


def _expiry_event(table_id: TableId, job: AssignedJob, now_ms: int) -> JobEvent:
    reason = f"its lease ran out at {iso_time(job.lease_expiry_ms)}: its files were released"
    return JobEvent(table_id, job.id, JobKind.COMPACTION, JobStep.FAILED, now_ms, reasons=(reason,))


def find_undispatched(
    table_id: TableId, store: StateStore, tracker: JobTracker
) -> list[CompactionJob]:
    """Returns the jobs that hold files and are unknown to the tracker."""
    undispatched: list[CompactionJob] = []
    with store.reading() as state:
        assigned = state.jobs.assigned()
        while batch := list(islice(assigned, _JOBS_PER_BATCH)):
            unknown = set(tracker.unknown(table_id, [job.id for job in batch]))
            undispatched += (
                CompactionJob(
                    j.id, table_id, j.partition_id, j.inputs, created_ms=j.assigned_time_ms
                )
                for j in batch
                if j.id in unknown
            )
    return undispatched


def dispatch(
    jobs: Sequence[CompactionJob], tracker: JobTracker, send: SendMessages, clock: Clock
) -> None:
    """Sends the jobs and records them as created, in batches."""
    for start in range(0, len(jobs), _JOBS_PER_BATCH):
        batch = jobs[start : start + _JOBS_PER_BATCH]
        send([job.to_json() for job in batch])
        now_ms = clock()
        tracker.record(
            *(
                JobEvent(
                    job.table_id,
                    job.id,
                    JobKind.COMPACTION,
                    JobStep.CREATED,
                    max(now_ms, job.created_ms),
                    inputs=len(job.inputs),
                )
                for job in batch
            )
        )


def assign(
    table_id: TableId,
    store: StateStore,
    selections: Sequence[Selection],
    lease_ms: int,
    clock: Clock = system_clock,
) -> list[CompactionJob]:
    """Assigns each selection to a new job under a lease, in one entry. Returns the jobs.

    If files were assigned or removed concurrently, each job is assigned separately.
    """
    with store.reading() as state:
        now_ms = state.moment(clock())
    jobs = [
        CompactionJob(
            new_compaction_job_id(), table_id, s.partition_id, s.inputs, created_ms=now_ms
        )
        for s in selections
    ]
    claims = [JobAssignment(j.id, j.partition_id, j.inputs, now_ms + lease_ms) for j in jobs]
    (outcome,) = store.commit(AssignFiles(tuple(claims)))
    if not outcome.refused:
        return jobs
    if len(jobs) == 1:
        logger.info("compaction job not assigned: %s", outcome.reason, extra={"table": table_id})
        return []
    outcomes = store.commit(*(AssignFiles((claim,)) for claim in claims))
    return [job for job, o in zip(jobs, outcomes, strict=True) if not o.refused]
