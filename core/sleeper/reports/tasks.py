"""The report on tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.jobs.status import TaskStatus
from sleeper.jobs.tracker import RECENT_JOBS, TaskTracker
from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted

LOST = "lost"
"""What is said of a task that was not heard of for too long, and of its job."""
_RUNNING = "running"
_COLUMNS = (
    Column("task", "Task"),
    Column("kind", "Kind"),
    Column("state", "State"),
    Column("started", "Started", ColumnKind.TIME),
    Column("heard", "Last heard of", ColumnKind.TIME),
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
    """The latest tasks, newest first. `silences` says of those that are lost since when, by id."""

    tasks: tuple[TaskStatus, ...]
    silences: Mapping[str, str] = field(default_factory=dict)

    def listing(self) -> Listing:
        """A row for each task."""
        states = [self._state(task) for task in self.tasks]
        lost = f", {states.count(LOST):,} {LOST}" if LOST in states else ""
        return Listing(
            name="tasks",
            summary=f"{counted(len(self.tasks), 'task')}, {states.count(_RUNNING):,} running{lost}",
            columns=_COLUMNS,
            rows=tuple(map(self._row, self.tasks, states)),
        )

    def _state(self, task: TaskStatus) -> str:
        if task.running:
            return LOST if task.task_id in self.silences else _RUNNING
        return "died" if task.reason else "ended"

    def _row(self, task: TaskStatus, state: str) -> tuple[Value, ...]:
        return (
            task.task_id,
            task.kind,
            state,
            task.started_ms,
            task.heard_ms if task.running else None,
            task.ended_ms,
            _seconds(task),
            task.jobs,
            task.rows_read,
            task.rows_written,
            task.process,
            self.silences.get(task.task_id) if state == LOST else task.reason,
        )


SilenceOf = Callable[[TaskStatus], str | None]
"""Says how long ago a task that is lost was last heard of; None of any other."""


def gather_tasks(
    tracker: TaskTracker,
    silence_of: SilenceOf,
    kind: str | None = None,
    limit: int = RECENT_JOBS,
) -> TasksReport:
    """Asks the tracker for the latest tasks."""
    tasks = tracker.recent(kind, limit)
    told = {task.task_id: silence_of(task) for task in tasks}
    return TasksReport(tasks, {task_id: text for task_id, text in told.items() if text})


def _seconds(task: TaskStatus) -> float | None:
    if task.started_ms is None or task.ended_ms is None:
        return None
    return max(task.ended_ms - task.started_ms, 0) / 1000
