"""The reports on jobs of one kind, tasks, queues and dead letters."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.message_members import read_named_job
from sleeper.jobs.queue import DeadLetter, QueueCounts, QueueName
from sleeper.jobs.status import JobRun, JobState, JobStatus, TaskLoss, TaskStatus
from sleeper.jobs.tracker import RECENT_JOBS, JobTracker, TaskTracker
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize, summarize
from sleeper.runs.task import find_loss_of_task
from sleeper.tables import TableId, TableIndex, TableState

LOST = "lost"
"""The state of a task that died without a recorded end, and of its job."""
_RUNNING = "running"
_NO_RUN = JobRun("", JobState.CREATED)


@dataclass(frozen=True, slots=True)
class ReportedJob:
    """A job with its last run, the name of its table, and the loss of its task."""

    status: JobStatus
    run: JobRun
    table: str
    loss: TaskLoss | None

    @property
    def state(self) -> str:
        return LOST if self.loss else self.status.state.value

    @property
    def rate(self) -> int | None:
        rate = self.run.rows_per_second
        return None if rate is None else round(rate)

    @property
    def reason(self) -> str | None:
        return describe_reasons(self.status, self.loss)


def describe_reasons(job: JobStatus, loss: TaskLoss | None) -> str | None:
    """Returns why a job failed, was rejected or is lost."""
    losses = [f"lost task: {loss.reason}"] if loss else []
    return "; ".join([*job.reasons, *losses]) or None


_REJECTED = Column("rows_rejected", "Rejected", ColumnKind.COUNT, lambda job: job.run.rows_rejected)
JOB_COLUMNS = (
    Column("job", "Job", value=lambda job: job.status.job_id),
    Column("table", "Table"),
    Column("state", "State"),
    Column("created", "Created", ColumnKind.TIME, lambda job: job.status.created_ms),
    Column("started", "Started", ColumnKind.TIME, lambda job: job.run.started_ms),
    Column("seconds", "Seconds", ColumnKind.SECONDS, lambda job: job.run.seconds),
    Column("files", "Files", ColumnKind.COUNT, lambda job: job.status.inputs),
    Column("rows_read", "Rows read", ColumnKind.COUNT, lambda job: job.run.rows_read),
    Column("rows_written", "Rows written", ColumnKind.COUNT, lambda job: job.run.rows_written),
    Column("rows_per_second", "Rows/s", ColumnKind.COUNT, lambda job: job.rate),
    Column("runs", "Runs", ColumnKind.COUNT, lambda job: len(job.status.runs)),
    Column("task", "Task", value=lambda job: job.run.task_id),
    Column("reason", "Reason"),
)
_INGEST_COLUMNS = tuple(
    column
    for each in JOB_COLUMNS
    for column in ([each, _REJECTED] if each.name == "rows_written" else [each])
)


def describe_jobs(
    kind: JobKind,
    jobs: tuple[JobStatus, ...],
    table_names: Mapping[TableId, str],
    losses: Mapping[str, TaskLoss],
    limit: int = RECENT_JOBS,
    columns: tuple[Column, ...] | None = None,
) -> Listing:
    """Describes up to `limit` jobs, with the times, rows and task of their last runs.

    `losses` has those of tasks, by id.
    """
    described = []
    for job in jobs[:limit]:
        run, table = job.last_run or _NO_RUN, table_names.get(job.table_id, job.table_id)
        loss = losses.get(run.task_id or "") if job.state is JobState.RUNNING else None
        if loss is not None:
            run = replace(run, ended_ms=loss.end_ms(run))
        described.append(ReportedJob(job, run, table, loss))
    counts = Counter(job.state for job in described)
    noun = f"{kind.value.replace('_', ' ')} job"
    return Listing.describe(
        f"{kind.value.replace('_', '-')}-jobs",
        summarize(
            pluralize(len(described), noun),
            {state: counts[state] for state in (*(each.value for each in JobState), LOST)},
        ),
        columns or (_INGEST_COLUMNS if kind is JobKind.INGEST else JOB_COLUMNS),
        described,
        note=f"older {noun}s exist: see --limit" if len(jobs) > limit else None,
    )


def report_jobs(
    instance: Instance,
    kind: JobKind,
    table_id: TableId | None,
    limit: int,
    columns: tuple[Column, ...] | None = None,
) -> Listing:
    """Lists the latest jobs of the instance, newest first, of one table if `table_id` is given."""
    find_loss = partial(find_loss_of_task, instance, instance.clock())
    tracker, index = instance.jobs.tracker, instance.tables.index
    return list_jobs(tracker, index, kind, find_loss, table_id, limit, columns)


def list_jobs(
    tracker: JobTracker,
    index: TableIndex,
    kind: JobKind,
    find_loss: Callable[[str], TaskLoss | None],
    table_id: TableId | None = None,
    limit: int = RECENT_JOBS,
    columns: tuple[Column, ...] | None = None,
) -> Listing:
    """Lists the latest jobs, newest first, of one table if `table_id` is given.

    `find_loss` takes a task's id and returns None unless the task is lost.
    """
    jobs = tracker.recent(kind, table_id, limit + 1)
    running = {
        job.last_run.task_id
        for job in jobs[:limit]
        if job.state is JobState.RUNNING and job.last_run and job.last_run.task_id
    }
    losses = {task_id: loss for task_id in running if (loss := find_loss(task_id))}
    return describe_jobs(kind, jobs, name_tables(index), losses, limit, columns)


def name_tables(index: TableIndex) -> dict[TableId, str]:
    """Returns the names of all tables, including those that are being deleted."""
    return {
        table.id: table.name
        for table in index.list(TableState.DELETING)
        + index.list(TableState.CREATING)
        + index.list()
    }


@dataclass(frozen=True, slots=True)
class _Task:
    """A task, and its loss if it is lost."""

    status: TaskStatus
    loss: TaskLoss | None

    @property
    def state(self) -> str:
        if self.status.running:
            return LOST if self.loss else _RUNNING
        return "died" if self.status.reason else "ended"

    @property
    def heartbeat_ms(self) -> int | None:
        return self.status.heartbeat_ms if self.status.running else None

    @property
    def reason(self) -> str | None:
        return self.loss.reason if self.loss else self.status.reason


_TASK_COLUMNS = (
    Column("task", "Task", value=lambda task: task.status.task_id),
    Column("kind", "Kind", value=lambda task: task.status.kind),
    Column("state", "State"),
    Column("started", "Started", ColumnKind.TIME, lambda task: task.status.started_ms),
    Column("heard", "Last heartbeat", ColumnKind.TIME, lambda task: task.heartbeat_ms),
    Column("ended", "Ended", ColumnKind.TIME, lambda task: task.status.ended_ms),
    Column("seconds", "Seconds", ColumnKind.SECONDS, lambda task: task.status.seconds),
    Column("jobs", "Jobs", ColumnKind.COUNT, lambda task: task.status.jobs),
    Column("rows_read", "Rows read", ColumnKind.COUNT, lambda task: task.status.rows_read),
    Column("rows_written", "Rows written", ColumnKind.COUNT, lambda task: task.status.rows_written),
    Column("process", "Process", value=lambda task: task.status.process),
    Column("reason", "Reason"),
)


def list_tasks(
    tracker: TaskTracker,
    find_loss: Callable[[TaskStatus], TaskLoss | None],
    kind: str | None = None,
    limit: int = RECENT_JOBS,
) -> Listing:
    """Lists the latest tasks, newest first.

    `find_loss` returns None unless the task is lost.
    """
    return describe_tasks({task: find_loss(task) for task in tracker.recent(kind, limit)})


def describe_tasks(losses: Mapping[TaskStatus, TaskLoss | None]) -> Listing:
    """Describes tasks; each has its loss, or None."""
    tasks = [_Task(status, loss) for status, loss in losses.items()]
    states = Counter(task.state for task in tasks)
    summary = f"{pluralize(len(tasks), 'task')}, {states[_RUNNING]:,} running"
    if states[LOST]:
        summary += f", {states[LOST]:,} {LOST}"
    return Listing.describe("tasks", summary, _TASK_COLUMNS, tasks)


_QUEUE_COLUMNS = (
    Column("queue", "Queue", value=lambda each: each[0]),
    Column("visible", "Waiting", ColumnKind.COUNT, lambda each: each[1].visible),
    Column("in_flight", "In flight", ColumnKind.COUNT, lambda each: each[1].in_flight),
    Column("delayed", "Delayed", ColumnKind.COUNT, lambda each: each[1].delayed),
    Column("dead", "Dead letters", ColumnKind.COUNT, lambda each: each[1].dead),
)
_DEAD_LETTER_COLUMNS = (
    Column("queue", "Queue", value=lambda each: each[0]),
    Column("message", "Message", value=lambda each: each[1].message_id),
    Column("receives", "Receives", ColumnKind.COUNT, lambda each: each[1].receives),
    Column("sent", "Sent", ColumnKind.TIME, lambda each: each[1].sent_ms),
    Column("died", "Died", ColumnKind.TIME, lambda each: each[1].died_ms),
    Column("reason", "Reason", value=lambda each: each[1].reason),
    Column("body", "Body", value=lambda each: each[1].body),
)


def list_queues(instance: Instance) -> Listing:
    """Lists the instance's queues with approximate numbers of messages."""
    counts: dict[str, QueueCounts] = {
        name.value: instance.jobs.queue(name).counts() for name in instance.jobs.queues
    }
    unfinished = sum(each.unfinished for each in counts.values())
    dead = sum(each.dead for each in counts.values())
    summary = f"{pluralize(unfinished, 'message')}, {pluralize(dead, 'dead letter')}"
    return Listing.describe("queues", summary, _QUEUE_COLUMNS, counts.items())


def list_dead_letters(instance: Instance, queue: str | None = None, limit: int = 100) -> Listing:
    """Lists the oldest dead letters of one queue or of all, up to `limit` per queue."""
    names = instance.jobs.queues if queue is None else (_find_queue(instance, queue),)
    return describe_dead_letters(
        {
            name.value: tuple(
                _with_reason(instance, each)
                for each in instance.jobs.dead_letters(name).list(limit)
            )
            for name in names
        }
    )


def _with_reason(instance: Instance, letter: DeadLetter) -> DeadLetter:
    """Adds the reason that the job tracker has, if the queue records none."""
    named = read_named_job(letter.body)
    table_id = named.find_table_id(instance.tables.index)
    if letter.reason is not None or named.job is None or table_id is None:
        return letter
    try:
        reasons = instance.jobs.tracker.job(table_id, named.job).reasons
    except NotFoundError:
        return letter
    return replace(letter, reason="; ".join(reasons) or None)


def describe_dead_letters(letters: Mapping[str, tuple[DeadLetter, ...]]) -> Listing:
    """Describes dead letters by queue."""
    items = [(queue, letter) for queue in sorted(letters) for letter in letters[queue]]
    summary = pluralize(len(items), "dead letter")
    return Listing.describe("dead-letters", summary, _DEAD_LETTER_COLUMNS, items)


def redrive_dead_letters(instance: Instance, queue: str) -> int:
    """Returns all dead letters to their queue with a receive count of 0; returns their number."""
    return instance.jobs.dead_letters(_find_queue(instance, queue)).redrive()


def delete_dead_letter(instance: Instance, queue: str, message_id: str) -> None:
    """Deletes a dead letter. NotFoundError if the id is unknown."""
    instance.jobs.dead_letters(_find_queue(instance, queue)).delete(message_id)


def _find_queue(instance: Instance, name: str) -> QueueName:
    for each in instance.jobs.queues:
        if each.value == name:
            return each
    names = ", ".join(each.value for each in instance.jobs.queues)
    raise NotFoundError(f"unknown queue: {name!r} (expected one of {names})")
