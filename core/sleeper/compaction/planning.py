"""Creates the compaction jobs of one table: release, push down, select, assign, dispatch.

Each step is an entry of the log, or repeats harmlessly, so that a creation that dies
anywhere is followed by one that goes on: assigned jobs that were never dispatched are
dispatched by the next.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sleeper.clock import Clock, system_clock
from sleeper.compaction.dispatch import SendMessages, dispatch, undispatched
from sleeper.compaction.job import CompactionJob, new_compaction_job_id
from sleeper.compaction.push_down import push_down_references
from sleeper.compaction.release import release_expired_jobs
from sleeper.compaction.selection import Selection, select, selector_of
from sleeper.jobs.tracker import JobTracker
from sleeper.properties.engine import COMPACTION_LEASE_SECONDS
from sleeper.properties.table import COMPACTION_JOBS_MAX
from sleeper.properties.values import TableProperties
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import AssignFiles, JobAssignment
from sleeper.tables.table_ref import TableId
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode

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
