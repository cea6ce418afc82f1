"""The reports on jobs of one kind, and on tasks."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState, JobStatus, TaskStatus
from sleeper.jobs.tracker import RECENT_JOBS, JobTracker, TaskTracker
from sleeper.reports.output import Column, ColumnKind, Listing, Value, pluralize
from sleeper.tables import TableId, TableIndex, TableState

LOST = "lost"
"""The state of a task whose heartbeats stopped, and of its job."""
_RUNNING = "running"
_JOB_COLUMNS = (
    Column("job", "Job"),
    Column("table", "Table"),
    Column("state", "State"),
    Column("created", "Created", ColumnKind.TIME),
    Column("started", "Started", ColumnKind.TIME),
    Column("seconds", "Seconds", ColumnKind.SECONDS),
    Column("files", "Files", ColumnKind.COUNT),
    Column("rows_read", "Rows read", ColumnKind.COUNT),
    Column("rows_written", "Rows written", ColumnKind.COUNT),
    Column("rows_per_second", "Rows/s", ColumnKind.COUNT),
    Column("runs", "Runs", ColumnKind.COUNT),
    Column("task", "Task"),
    Column("reason", "Reason"),
)
_TASK_COLUMNS = (
    Column("task", "Task"),
    Column("kind", "Kind"),
    Column("state", "State"),
    Column("started", "Started", ColumnKind.TIME),
    Column("heard", "Last heartbeat", ColumnKind.TIME),
    Column("ended", "Ended", ColumnKind.TIME),
    Column("seconds", "Seconds", ColumnKind.SECONDS),
    Column("jobs", "Jobs", ColumnKind.COUNT),
    Column("rows_read", "Rows read", ColumnKind.COUNT),
    Column("rows_written", "Rows written", ColumnKind.COUNT),
    Column("process", "Process"),
    Column("reason", "Reason"),
)


@dataclass(frozen=True, slots=True)
class JobsReport:
    """The latest jobs of a kind, newest first, with the names of their tables.

    `is_truncated` if older jobs exist; `losses` describes lost tasks, by id.
    """

    kind: JobKind
    jobs: tuple[JobStatus, ...]
    table_names: Mapping[TableId, str]
    is_truncated: bool = False
    losses: Mapping[str, str] = field(default_factory=dict)

    def listing(self) -> Listing:
        """Returns a row per job, with the times, rows and task of its last run."""
        noun = f"{self.kind.value.replace('_', ' ')} job"
        states = Counter(self._state(job) for job in self.jobs)
        known = (*(state.value for state in JobState), LOST)
        parts = ", ".join(f"{states[state]:,} {state}" for state in known if states[state])
        summary = pluralize(len(self.jobs), noun)
        return Listing(
            name=f"{self.kind.value.replace('_', '-')}-jobs",
            summary=f"{summary}: {parts}" if parts else summary,
            columns=_JOB_COLUMNS,
            rows=tuple(self._row(job) for job in self.jobs),
            note=f"older {noun}s exist: see --limit" if self.is_truncated else None,
        )

    def _find_loss(self, job: JobStatus) -> str | None:
        """Returns the description of the task that runs the job if that task is lost."""
        run = job.last_run
        if job.state is not JobState.RUNNING or run is None:
            return None
        return self.losses.get(run.task_id or "")

    def _state(self, job: JobStatus) -> str:
        return LOST if self._find_loss(job) else job.state.value

    def _row(self, job: JobStatus) -> tuple[Value, ...]:
        run = job.last_run
        loss = self._find_loss(job)
        reasons = (*job.reasons, f"lost task: {loss}") if loss else job.reasons
        rate = run.rows_per_second if run else None
        return (
            job.job_id,
            self.table_names.get(job.table_id, job.table_id),
            self._state(job),
            job.created_ms,
            run.started_ms if run else None,
            run.seconds if run else None,
            job.inputs,
            run.rows_read if run else None,
            run.rows_written if run else None,
            round(rate) if rate is not None else None,
            len(job.runs),
            run.task_id if run else None,
            "; ".join(reasons) or None,
        )


def gather_jobs(
    tracker: JobTracker,
    index: TableIndex,
    kind: JobKind,
    describe_loss: Callable[[str], str | None],
    table_id: TableId | None = None,
    limit: int = RECENT_JOBS,
) -> JobsReport:
    """Reads the latest jobs, of one table if `table_id` is given.

    `describe_loss` takes a task's id and returns None unless the task is lost.
    """
    tables = index.list(TableState.DELETING) + index.list()
    jobs = tracker.recent(kind, table_id, limit + 1)
    running = {
        job.last_run.task_id
        for job in jobs[:limit]
        if job.state is JobState.RUNNING and job.last_run and job.last_run.task_id
    }
    losses = {task_id: describe_loss(task_id) for task_id in running}
    return JobsReport(
        kind=kind,
        jobs=jobs[:limit],
        table_names={table.id: table.name for table in tables},
        is_truncated=len(jobs) > limit,
        losses={task_id: text for task_id, text in losses.items() if text},
    )


@dataclass(frozen=True, slots=True)
class TasksReport:
    """The latest tasks, newest first; `losses` describes lost tasks, by id."""

    tasks: tuple[TaskStatus, ...]
    losses: Mapping[str, str] = field(default_factory=dict)

    def listing(self) -> Listing:
        """Returns a row per task."""
        states = [self._state(task) for task in self.tasks]
        summary = f"{pluralize(len(self.tasks), 'task')}, {states.count(_RUNNING):,} running"
        lost = states.count(LOST)
        return Listing(
            name="tasks",
            summary=f"{summary}, {lost:,} {LOST}" if lost else summary,
            columns=_TASK_COLUMNS,
            rows=tuple(map(self._row, self.tasks, states)),
        )

    def _state(self, task: TaskStatus) -> str:
        if task.running:
            return LOST if task.task_id in self.losses else _RUNNING
        return "died" if task.reason else "ended"

    def _row(self, task: TaskStatus, state: str) -> tuple[Value, ...]:
        return (
            task.task_id,
            task.kind,
            state,
            task.started_ms,
            task.heartbeat_ms if task.running else None,
            task.ended_ms,
            _seconds(task),
            task.jobs,
            task.rows_read,
            task.rows_written,
            task.process,
            self.losses.get(task.task_id) if state == LOST else task.reason,
        )


def gather_tasks(
    tracker: TaskTracker,
    describe_loss: Callable[[TaskStatus], str | None],
    kind: str | None = None,
    limit: int = RECENT_JOBS,
) -> TasksReport:
    """Reads the latest tasks; `describe_loss` returns None unless the task is lost."""
    tasks = tracker.recent(kind, limit)
    losses = {task.task_id: describe_loss(task) for task in tasks}
    return TasksReport(tasks, {task_id: text for task_id, text in losses.items() if text})


def _seconds(task: TaskStatus) -> float | None:
    if task.started_ms is None or task.ended_ms is None:
        return None
    return max(task.ended_ms - task.started_ms, 0) / 1000
