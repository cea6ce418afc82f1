"""Jobs whose lease ran out give their files back."""

from sleeper.clock import Clock, iso_time
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.tracker import JobTracker
from sleeper.statestore.reading.job_queries import AssignedJob
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.commit_compaction import CommitCompaction
from sleeper.statestore.transactions.compaction_jobs import ReleaseJobs
from sleeper.tables.table_ref import TableId

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
