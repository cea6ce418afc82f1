"""The reports on jobs of one kind: ingest jobs, compaction jobs and others."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState, JobStatus
from sleeper.jobs.tracker import RECENT_JOBS, JobTracker
from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted
from sleeper.reports.tasks import LOST
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableState

_COLUMNS = (
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


@dataclass(frozen=True, slots=True)
class JobsReport:
    """The latest jobs of a kind, newest first, with the names of their tables.

    `is_cut` says that there are older ones, `silences` of tasks that are lost since when, by id.
    """

    kind: JobKind
    jobs: tuple[JobStatus, ...]
    table_names: Mapping[TableId, str]
    is_cut: bool = False
    silences: Mapping[str, str] = field(default_factory=dict)

    def listing(self) -> Listing:
        """A row for each job; times, rows and task are of the run that counts."""
        noun = f"{self.kind.value.replace('_', ' ')} job"
        states = Counter(self._state_of(job) for job in self.jobs)
        known = (*(state.value for state in JobState), LOST)
        parts = ", ".join(f"{states[state]:,} {state}" for state in known if states[state])
        summary = counted(len(self.jobs), noun)
        return Listing(
            name=f"{self.kind.value.replace('_', '-')}-jobs",
            summary=f"{summary}: {parts}" if parts else summary,
            columns=_COLUMNS,
            rows=tuple(self._row(job) for job in self.jobs),
            note=f"older {noun}s exist: see --limit" if self.is_cut else None,
        )

    def _silence_of(self, job: JobStatus) -> str | None:
        """What is known of the task that is said to run it, if that is lost."""
        run = job.last_run
        if job.state is not JobState.RUNNING or run is None:
            return None
        return self.silences.get(run.task_id or "")

    def _state_of(self, job: JobStatus) -> str:
        return LOST if self._silence_of(job) else job.state.value

    def _row(self, job: JobStatus) -> tuple[Value, ...]:
        run = job.last_run
        silence = self._silence_of(job)
        reasons = (*job.reasons, f"its task was {silence}") if silence else job.reasons
        rate = run.rows_per_second if run else None
        return (
            job.job_id,
            self.table_names.get(job.table_id, job.table_id),
            self._state_of(job),
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
    silence_of: Callable[[str], str | None],
    table_id: TableId | None = None,
    limit: int = RECENT_JOBS,
) -> JobsReport:
    """Asks the tracker for the latest jobs, and the index for the names of tables.

    `silence_of` says how long ago a task that is lost was last heard of, by its id.
    """
    tables = index.list(TableState.DELETING) + index.list()
    jobs = tracker.recent(kind, table_id, limit + 1)
    running = {
        job.last_run.task_id
        for job in jobs[:limit]
        if job.state is JobState.RUNNING and job.last_run and job.last_run.task_id
    }
    silences = {task_id: silence_of(task_id) for task_id in running}
    return JobsReport(
        kind=kind,
        jobs=jobs[:limit],
        table_names={table.id: table.name for table in tables},
        is_cut=len(jobs) > limit,
        silences={task_id: text for task_id, text in silences.items() if text},
    )
