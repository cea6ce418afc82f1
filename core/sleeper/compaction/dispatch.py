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

_JOBS_PER_LOOK = 500


def dispatch(
    jobs: Sequence[CompactionJob],
    tracker: JobTracker,
    send: Callable[[str], object],
    clock: Clock,
) -> None:
    """Sends the jobs and records that they were created."""
    if not jobs:
        return
    for job in jobs:
        send(job.to_json())
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
            for job in jobs
        )
    )


def undispatched(table_id: TableId, store: StateStore, tracker: JobTracker) -> list[CompactionJob]:
    """Jobs that hold files, but that the tracker has never heard of."""
    found: list[CompactionJob] = []
    with store.reading() as state:
        assigned = state.jobs.assigned()
        while some := list(islice(assigned, _JOBS_PER_LOOK)):
            unknown = set(tracker.unknown(table_id, [job.id for job in some]))
            found += (
                CompactionJob(j.id, table_id, j.partition_id, j.inputs, j.assigned_time_ms)
                for j in some
                if j.id in unknown
            )
    return found
