"""States of jobs and tasks, derived from their events."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.tables import TableId


class JobState(Enum):
    """The state of a job or of a run."""

    CREATED = "created"
    ACCEPTED = "accepted"
    RUNNING = "running"
    FINISHED = "finished"
    COMMITTED = "committed"
    FAILED = "failed"
    REJECTED = "rejected"


# The last step of a run determines its state. A commit outranks every other step, because it is
# final.
_STATES_BY_RANK = (
    (JobStep.COMMITTED, JobState.COMMITTED),
    (JobStep.REJECTED, JobState.REJECTED),
    (JobStep.FAILED, JobState.FAILED),
    (JobStep.FINISHED, JobState.FINISHED),
    (JobStep.STARTED, JobState.RUNNING),
    (JobStep.ACCEPTED, JobState.ACCEPTED),
)


@dataclass(frozen=True, slots=True)
class JobRun:
    """One attempt at a job. Times are in milliseconds since the epoch, None where unknown.

    `platform_run` is the name of the run on its Spark platform. `bytes` of written files, `number`
    of the transaction and `source` are those of a run that reads one. `rows_rejected` is the number
    of rows that an ingest set aside, None for 0.
    """

    run_id: str
    state: JobState
    task_id: str | None = None
    platform_run: str | None = None
    accepted_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    reasons: tuple[str, ...] = ()
    bytes: int | None = None
    number: int | None = None
    source: str | None = None
    rows_rejected: int | None = None

    @property
    def seconds(self) -> float | None:
        """The duration of the run, None unless it started and ended."""
        return _seconds_between(self.started_ms, self.ended_ms)

    @property
    def rows_per_second(self) -> float | None:
        """Rows written, or read if none were written, per second."""
        rows, seconds = self.rows_written or self.rows_read, self.seconds
        return rows / seconds if rows is not None and seconds else None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job with its runs, oldest first."""

    table_id: TableId
    job_id: str
    kind: JobKind
    state: JobState
    created_ms: int | None
    updated_ms: int
    inputs: int | None
    runs: tuple[JobRun, ...]
    reasons: tuple[str, ...]

    @property
    def last_run(self) -> JobRun | None:
        """The committed run, or else the latest."""
        committed = [run for run in self.runs if run.state is JobState.COMMITTED]
        candidates = committed or self.runs
        return candidates[-1] if candidates else None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task, running until its end is recorded. `heartbeat_ms` is the time of the latest one."""

    task_id: str
    kind: str
    process: str | None
    started_ms: int | None
    heartbeat_ms: int | None
    ended_ms: int | None
    jobs: int | None
    rows_read: int | None
    rows_written: int | None
    reason: str | None

    @property
    def running(self) -> bool:
        """Whether no end is recorded."""
        return self.ended_ms is None

    @property
    def seconds(self) -> float | None:
        """The duration of the task, None unless it started and ended."""
        return _seconds_between(self.started_ms, self.ended_ms)

    @property
    def last_seen_ms(self) -> int:
        """The time of its latest heartbeat, or its start."""
        return max(self.started_ms or 0, self.heartbeat_ms or 0)


@dataclass(frozen=True, slots=True)
class TaskLoss:
    """Why a task that recorded no end is lost, and when it was seen last."""

    reason: str
    last_seen_ms: int

    def end_ms(self, run: JobRun) -> int:
        """Returns the end of a run of the task, as far as it is known."""
        return max(self.last_seen_ms, run.started_ms or 0)


def fold_jobs(events: Iterable[JobEvent]) -> tuple[JobStatus, ...]:
    """Returns the jobs of the events, newest first. The order of the events does not matter."""
    jobs: defaultdict[tuple[TableId, str], list[JobEvent]] = defaultdict(list)
    for event in events:
        jobs[event.table_id, event.job_id].append(event)
    statuses = [_job(*key, of_job) for key, of_job in jobs.items()]
    return tuple(sorted(statuses, key=lambda job: (-_begun_ms(job), job.job_id)))


def fold_tasks(events: Iterable[TaskEvent]) -> tuple[TaskStatus, ...]:
    """Returns the tasks of the events, newest first."""
    tasks: defaultdict[str, list[TaskEvent]] = defaultdict(list)
    for event in events:
        tasks[event.task_id].append(event)
    statuses = [_task(task_id, of_task) for task_id, of_task in tasks.items()]
    return tuple(sorted(statuses, key=lambda t: (-(t.started_ms or t.ended_ms or 0), t.task_id)))


def _job(table_id: TableId, job_id: str, events: list[JobEvent]) -> JobStatus:
    runs: defaultdict[str, dict[JobStep, JobEvent]] = defaultdict(dict)
    for event in events:
        earlier = runs[event.run_id].get(event.step)
        if earlier is None or event.at_ms < earlier.at_ms:
            runs[event.run_id][event.step] = event
    outside = runs.pop("", {})
    in_order = sorted(
        (_run(run_id, steps) for run_id, steps in runs.items()),
        key=lambda run: (run.accepted_ms or run.started_ms or run.ended_ms or 0, run.run_id),
    )
    created = outside.get(JobStep.CREATED)
    state, reasons = _job_state(outside, in_order)
    return JobStatus(
        table_id=table_id,
        job_id=job_id,
        kind=events[0].kind,
        state=state,
        created_ms=created.at_ms if created else None,
        updated_ms=max(event.at_ms for event in events),
        inputs=next((e.inputs for e in events if e.inputs is not None), None),
        runs=tuple(in_order),
        reasons=reasons,
    )


def _job_state(
    outside: dict[JobStep, JobEvent], runs: list[JobRun]
) -> tuple[JobState, tuple[str, ...]]:
    if any(run.state is JobState.COMMITTED for run in runs) or JobStep.COMMITTED in outside:
        return JobState.COMMITTED, ()
    for step, state in _STATES_BY_RANK[1:3]:
        if step in outside:
            return state, outside[step].reasons
    if runs:
        return runs[-1].state, runs[-1].reasons
    return JobState.CREATED, ()


def _run(run_id: str, steps: dict[JobStep, JobEvent]) -> JobRun:
    state = next((s for step, s in _STATES_BY_RANK if step in steps), JobState.CREATED)
    accepted = steps.pop(JobStep.ACCEPTED, None)
    started, finished = steps.get(JobStep.STARTED), steps.get(JobStep.FINISHED)
    failure = steps.get(JobStep.REJECTED) or steps.get(JobStep.FAILED)
    ended = finished or steps.get(JobStep.COMMITTED) or failure
    refused = state in {JobState.FAILED, JobState.REJECTED}
    return JobRun(
        run_id=run_id,
        state=state,
        task_id=next((e.task_id for e in steps.values() if e.task_id), None),
        platform_run=accepted.task_id if accepted else None,
        accepted_ms=accepted.at_ms if accepted else None,
        started_ms=started.at_ms if started else None,
        ended_ms=ended.at_ms if ended else None,
        rows_read=finished.rows_read if finished else None,
        rows_written=finished.rows_written if finished else None,
        reasons=failure.reasons if failure and refused else (),
        bytes=finished.bytes if finished else None,
        number=finished.number if finished else None,
        source=next((e.source for e in (finished, started) if e and e.source), None),
        rows_rejected=finished.rows_rejected if finished else None,
    )


def _task(task_id: str, events: list[TaskEvent]) -> TaskStatus:
    starts = [e for e in events if e.step is TaskStep.STARTED]
    ends = [e for e in events if e.step is TaskStep.ENDED]
    heartbeats = [e.at_ms for e in events if e.step is TaskStep.HEARTBEAT]
    start = min(starts, key=lambda e: e.at_ms) if starts else None
    # The end that a task records itself, without a reason, has its totals.
    end = min(ends, key=lambda e: (e.reason is not None, e.at_ms)) if ends else None
    return TaskStatus(
        task_id=task_id,
        kind=events[0].kind,
        process=next((e.process for e in events if e.process), None),
        started_ms=start.at_ms if start else None,
        heartbeat_ms=max(heartbeats, default=None),
        ended_ms=end.at_ms if end else None,
        jobs=end.jobs if end else None,
        rows_read=end.rows_read if end else None,
        rows_written=end.rows_written if end else None,
        reason=end.reason if end else None,
    )


def _begun_ms(job: JobStatus) -> int:
    starts = [run.started_ms for run in job.runs if run.started_ms is not None]
    return job.created_ms if job.created_ms is not None else min(starts, default=job.updated_ms)


def _seconds_between(start_ms: int | None, end_ms: int | None) -> float | None:
    return None if start_ms is None or end_ms is None else max(end_ms - start_ms, 0) / 1000
