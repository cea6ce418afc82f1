"""Reports on a run of background work: a line per job, and the summary as text or JSON."""

from sleeper.jobs.queue import LOCAL_QUEUES, QueueName
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.workers.run_status import JobOutcome, JobReport, RunStatus

_ALWAYS = (QueueName.INGEST, QueueName.COMPACTION, QueueName.SPLITTING, QueueName.QUERY)


def describe_job(report: JobReport) -> str:
    """Returns one line on a run of a job."""
    jobs = LOCAL_QUEUES.get(report.queue)
    noun = report.queue.value if jobs is None else jobs.noun
    words = [noun, *([report.job] if report.job else [])]
    if report.table:
        words += ["of", report.table]
    name = " ".join(words)
    if report.outcome is JobOutcome.DONE:
        rows = f"{pluralize(report.rows, 'row')} in" if report.rows else "done in"
        return f"{name}: {rows} {report.run_ms / 1000:.1f} s"
    text = f"{name}: {report.outcome.value} after {report.run_ms / 1000:.1f} s: {report.reason}"
    if report.retry_ms is not None:
        text += f"; next try in {report.retry_ms / 1000:.0f} s"
    return text


def summarize_run(status: RunStatus) -> str:
    """Returns one line on a run."""
    parts = [
        pluralize(status.done.get(queue.value, 0), jobs.noun, jobs.plural)
        for queue, jobs in LOCAL_QUEUES.items()
        if queue in _ALWAYS or status.done.get(queue.value)
    ]
    parts.append(pluralize(status.failures, "failure"))
    parts.append(pluralize(status.dead_letters, "dead letter"))
    parts.append(f"{pluralize(status.files_collected, 'file')} collected")
    if status.workers_died:
        parts.append(f"{pluralize(status.workers_died, 'worker')} died")
    if status.exports and status.idle:
        parts.append(f"{pluralize(status.exports, 'export')} pending")
    end = "no work left" if status.idle else "work may remain"
    return f"{', '.join(parts)} in {status.seconds:.1f} s; {end}"


def _done(queue: QueueName) -> Column:
    noun = LOCAL_QUEUES[queue].plural.replace(" ", "_")
    return Column(noun, noun, ColumnKind.COUNT, lambda status: status.done.get(queue.value, 0))


_COLUMNS = (
    *(_done(queue) for queue in LOCAL_QUEUES),
    Column("failures", "Failures", ColumnKind.COUNT),
    Column("dead_letters", "Dead letters", ColumnKind.COUNT),
    Column("files_collected", "Files collected", ColumnKind.COUNT),
    Column("workers_died", "Workers died", ColumnKind.COUNT),
    Column("exports_pending", "Exports", ColumnKind.COUNT, lambda status: status.exports),
    Column("idle", "Idle"),
    Column("seconds", "Seconds", ColumnKind.SECONDS),
    Column("problems", "Problems", value=lambda status: list(status.problems)),
)


def describe_run(status: RunStatus) -> Listing:
    """Describes a run as a listing of one row."""
    return Listing.describe("run", summarize_run(status), _COLUMNS, [status])
