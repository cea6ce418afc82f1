"""Listings of adapters and of their runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sleeper.adapters.definition import ADAPTER_RUN, ADAPTERS, Adapter
from sleeper.adapters.due import find_missed
from sleeper.adapters.store import AdapterStore
from sleeper.clock import iso_time
from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.status import JobRun, JobState, JobStatus
from sleeper.reports.jobs import JOB_COLUMNS, ReportedJob, report_jobs
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.runs.task import find_loss_of_task
from sleeper.schedule import next_due_ms
from sleeper.tables import TableId

_RECENT_JOBS = 200
_NO_RUN = JobRun("", JobState.CREATED)


@dataclass(frozen=True, slots=True)
class ReportedAdapter:
    """An adapter with its last run, its next due time, and the one that it has missed."""

    adapter: Adapter
    job: ReportedJob | None
    next_due_ms: int | None
    missed_ms: int | None

    @property
    def run(self) -> JobRun:
        return self.job.run if self.job else _NO_RUN


_JOB_COLUMNS = (
    *(each for each in JOB_COLUMNS if each.name not in {"files", "task", "reason"}),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda job: job.run.bytes),
    Column("version", "Transaction", ColumnKind.COUNT, lambda job: job.run.number),
    Column("source", "Source", value=lambda job: job.run.source),
    Column("task", "Task", value=lambda job: job.run.task_id),
    Column("reason", "Reason"),
)
_ADAPTER_COLUMNS = (
    Column("adapter", "Adapter", value=lambda each: each.adapter.name),
    Column("source", "Source", value=lambda each: each.adapter.source.describe()),
    Column("sink", "Sink", value=lambda each: each.adapter.sink.table),
    Column(
        "schedule",
        "Schedule",
        value=lambda each: each.adapter.schedule.expression if each.adapter.schedule else None,
    ),
    Column("next", "Next run", ColumnKind.TIME, lambda each: each.next_due_ms),
    Column("missed", "Missed", ColumnKind.TIME, lambda each: each.missed_ms),
    Column("state", "Last run", value=lambda each: each.job.state if each.job else None),
    Column("ended", "Ended", ColumnKind.TIME, lambda each: each.run.ended_ms),
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.run.rows_written),
    Column("reason", "Reason", value=lambda each: each.job.reason if each.job else None),
)
_RUN_COLUMNS = (
    Column("run", "Run", value=lambda job: job.status.job_id.partition(":")[2]),
    Column("state", "State"),
    Column("started", "Started", ColumnKind.TIME, lambda job: job.run.started_ms),
    Column("seconds", "Seconds", ColumnKind.SECONDS, lambda job: job.run.seconds),
    Column("rows", "Rows", ColumnKind.COUNT, lambda job: job.run.rows_written),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda job: job.run.bytes),
    Column("version", "Transaction", ColumnKind.COUNT, lambda job: job.run.number),
    Column("source", "Source", value=lambda job: job.run.source),
    Column("reason", "Reason"),
)
_DEFINITION = ("name", "source", "sink", "schedule", "columns", "constants")


def list_adapters(instance: Instance) -> Listing:
    """Lists all adapters by name, each with its last run."""
    listed = gather_adapters(instance)
    summary = pluralize(len(listed), "adapter")
    if late := sum(each.missed_ms is not None for each in listed):
        summary += f", {late} late"
    return Listing.describe("adapters", summary, _ADAPTER_COLUMNS, listed)


def gather_adapters(instance: Instance) -> list[ReportedAdapter]:
    """Returns all adapters by name, each with its last run and the start that it has missed."""
    store = AdapterStore(instance.storage.root)
    adapters = store.list()
    recent = recent_runs(instance) if adapters else ()
    return [gather_adapter(instance, store, adapter, recent) for adapter in adapters]


def recent_runs(instance: Instance) -> Sequence[JobStatus]:
    """Returns the latest runs of all adapters, newest first."""
    return instance.jobs.tracker.recent(ADAPTER_RUN, limit=_RECENT_JOBS)


def gather_adapter(
    instance: Instance, store: AdapterStore, adapter: Adapter, recent: Sequence[JobStatus]
) -> ReportedAdapter:
    """Returns an adapter with its last run. `recent` are the latest runs of all adapters."""
    last, now_ms = _find_last(instance, adapter, recent), instance.clock()
    return ReportedAdapter(
        adapter,
        None if last is None else _look_at(instance, last),
        next_due_ms(adapter.schedule, now_ms) if adapter.schedule else None,
        find_missed(store, adapter, now_ms),
    )


def show_adapter(instance: Instance, name: str, limit: int) -> tuple[Listing, Listing]:
    """Returns the members of a definition, and the adapter's latest runs, newest first."""
    adapter = AdapterStore(instance.storage.root).get(name)
    jobs = [_look_at(instance, job) for job in _find_runs(instance, adapter, limit)]
    return (
        _describe(adapter),
        Listing.describe("adapter-runs", pluralize(len(jobs), "latest run"), _RUN_COLUMNS, jobs),
    )


def _find_runs(instance: Instance, adapter: Adapter, limit: int) -> tuple[JobStatus, ...]:
    """Returns the latest runs of an adapter into its sink, newest first."""
    try:
        table_id = instance.tables.index.find(adapter.sink.table).id
    except NotFoundError:
        return ()
    jobs = instance.jobs.tracker.recent(ADAPTER_RUN, table_id, _RECENT_JOBS)
    return tuple(j for j in jobs if j.job_id.startswith(adapter.job_prefix))[:limit]


def _find_last(
    instance: Instance, adapter: Adapter, recent: Iterable[JobStatus]
) -> JobStatus | None:
    """Returns the last run of an adapter, perhaps older than all of `recent`."""
    runs = (job for job in recent if job.job_id.startswith(adapter.job_prefix))
    return next(runs, None) or next(iter(_find_runs(instance, adapter, 1)), None)


def _describe(adapter: Adapter) -> Listing:
    """Describes a definition: a row with its members in JSON, lines in text."""
    raw = ADAPTERS.to_json(adapter)
    if adapter.schedule is not None:
        raw["schedule"] = {
            "expression": adapter.schedule.expression,
            "setAt": iso_time(adapter.schedule.since_ms),
        }
    columns = tuple(Column(member, member.title()) for member in _DEFINITION)
    row = tuple(raw.get(member) for member in _DEFINITION)
    lines = [
        f"  {group}.{member}: {value if isinstance(value, str | int) else ', '.join(value)}"
        for group, members in raw.items()
        if isinstance(members, dict)
        for member, value in members.items()
    ]
    return Listing("adapter", f"adapter {adapter.name}", columns, (row,), tuple(lines))


def _look_at(instance: Instance, job: JobStatus) -> ReportedJob:
    """Returns the job as it is shown: lost if its task died without a recorded end.

    Its run is the one that committed, not a repetition that found it done; else the latest.
    """
    committed = (run for run in job.runs if run.rows_written is not None)
    run = next(committed, job.last_run or _NO_RUN)
    loss = None
    if job.state is JobState.RUNNING and run.task_id is not None:
        loss = find_loss_of_task(instance, instance.clock(), run.task_id)
    return ReportedJob(
        job, run if loss is None else replace(run, ended_ms=loss.end_ms(run)), "", loss
    )


def report_runs(instance: Instance, table_id: TableId | None, limit: int) -> Listing:
    """Lists the latest runs of adapters, newest first, of one sink if `table_id` is given."""
    return report_jobs(instance, ADAPTER_RUN, table_id, limit, _JOB_COLUMNS)
