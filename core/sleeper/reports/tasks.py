"""The report on tasks."""

from dataclasses import dataclass

from sleeper.jobs.status import TaskStatus
from sleeper.jobs.tracker import RECENT_JOBS, TaskTracker
from sleeper.reports.listing import Column, ColumnKind, Listing, Value, counted

_COLUMNS = (
    Column("task", "Task"),
    Column("kind", "Kind"),
    Column("state", "State"),
    Column("started", "Started", ColumnKind.TIME),
    Column("ended", "Ended", ColumnKind.TIME),
    Column("seconds", "Seconds", ColumnKind.SECONDS),
    Column("jobs", "Jobs", ColumnKind.COUNT),
    Column("rows_read", "Rows read", ColumnKind.COUNT),
    Column("rows_written", "Rows written", ColumnKind.COUNT),
    Column("process", "Process"),
    Column("reason", "Reason"),
)


@dataclass(frozen=True, slots=True)
class TasksReport:
    """The latest tasks, newest first."""

    tasks: tuple[TaskStatus, ...]

    def listing(self) -> Listing:
        """A row for each task."""
        running = sum(task.running for task in self.tasks)
        return Listing(
            name="tasks",
            summary=f"{counted(len(self.tasks), 'task')}, {running:,} running",
            columns=_COLUMNS,
            rows=tuple(_row(task) for task in self.tasks),
        )


def gather_tasks(
    tracker: TaskTracker, kind: str | None = None, limit: int = RECENT_JOBS
) -> TasksReport:
    """Asks the tracker for the latest tasks."""
    return TasksReport(tracker.recent(kind, limit))


def _row(task: TaskStatus) -> tuple[Value, ...]:
    return (
        task.task_id,
        task.kind,
        _state(task),
        task.started_ms,
        task.ended_ms,
        _seconds(task),
        task.jobs,
        task.rows_read,
        task.rows_written,
        task.process,
        task.reason,
    )


def _state(task: TaskStatus) -> str:
    if task.running:
        return "running"
    return "died" if task.reason else "ended"


def _seconds(task: TaskStatus) -> float | None:
    if task.started_ms is None or task.ended_ms is None:
        return None
    return max(task.ended_ms - task.started_ms, 0) / 1000
