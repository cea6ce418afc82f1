"""The reports on jobs of one kind: ingest jobs, compaction jobs and others."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState, JobStatus
from sleeper.jobs.tracker import RECENT_JOBS, JobTracker
from sleeper.reports.listing import Column, ColumnKind, Listing, Value, counted
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

    `is_cut` says that there are older ones.
    """

    kind: JobKind
    jobs: tuple[JobStatus, ...]
    table_names: Mapping[TableId, str]
    is_cut: bool = False

    def listing(self) -> Listing:
        """A row for each job; times, rows and task are of the run that counts."""
        noun = f"{self.kind.value.replace('_', ' ')} job"
        states = Counter(job.state for job in self.jobs)
        parts = ", ".join(f"{states[s]:,} {s.value}" for s in JobState if states[s])
        summary = counted(len(self.jobs), noun)
        return Listing(
            name=f"{self.kind.value.replace('_', '-')}-jobs",
            summary=f"{summary}: {parts}" if parts else summary,
            columns=_COLUMNS,
            rows=tuple(self._row(job) for job in self.jobs),
            note=f"there are older {noun}s: see --limit" if self.is_cut else None,
        )

    def _row(self, job: JobStatus) -> tuple[Value, ...]:
        run = job.last_run
        rate = run.rows_per_second if run else None
        return (
            job.job_id,
            self.table_names.get(job.table_id, job.table_id),
            job.state.value,
            job.created_ms,
            run.started_ms if run else None,
            run.seconds if run else None,
            job.inputs,
            run.rows_read if run else None,
            run.rows_written if run else None,
            round(rate) if rate is not None else None,
            len(job.runs),
            run.task_id if run else None,
            "; ".join(job.reasons) or None,
        )


def gather_jobs(
    tracker: JobTracker,
    index: TableIndex,
    kind: JobKind,
    table_id: TableId | None = None,
    limit: int = RECENT_JOBS,
) -> JobsReport:
    """Asks the tracker for the latest jobs, and the index for the names of tables."""
    tables = index.list(TableState.DELETING) + index.list()
    jobs = tracker.recent(kind, table_id, limit + 1)
    return JobsReport(
        kind=kind,
        jobs=jobs[:limit],
        table_names={table.id: table.name for table in tables},
        is_cut=len(jobs) > limit,
    )
