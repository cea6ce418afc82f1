"""Jobs whose assignment is committed go to the queue.

A job is sent first and recorded as created after, so that one that the tracker does not
know may not have been sent. A job may so be sent twice, which changes nothing: the second
run finds it done.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from sleeper.clock import Clock
from sleeper.compaction.job import CompactionJob
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.tracker import JobTracker
from sleeper.statestore.store import StateStore
from sleeper.tables.table_ref import TableId

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
