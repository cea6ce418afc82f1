"""The progress of `sleeper run`, and the jobs that its workers ran."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sleeper.jobs.queue import QueueName
from sleeper.json_codec import JsonCodec


class JobOutcome(StrEnum):
    """The outcome of a job.

    A failed job returns to its queue, or becomes a dead letter. A rejected one can never succeed. A
    dropped one is not needed any more.
    """

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class JobReport:
    """A run of a job by a worker.

    `message_id` is that of its message, and `job` its own id if it has one. `table` is a table's
    name, or the id of one that does not exist. `run_ms` is the time that it took, and `retry_ms`
    the time until the next run, None if it is the last one.
    """

    queue: QueueName
    message_id: str
    outcome: JobOutcome
    run_ms: int
    job: str | None = None
    table: str | None = None
    rows: int = 0
    reason: str | None = None
    retry_ms: int | None = None


JOB_REPORTS = JsonCodec(JobReport)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The progress of a run of background work.

    `waiting` and `running` count jobs by queue, `delayed` the waiting ones that are
    not due yet, and `exports` the pending exports of export queues. `done` counts jobs that
    succeeded, by queue, `failures` jobs whose last run failed or was rejected, and `dead_letters`
    jobs that became dead letters. `idle` is true if no work is left.
    `problems` has the last 20 distinct warnings, as text.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
    exports: int = 0
    workers: int = 0
    workers_died: int = 0
    compactions_created: int = 0
    splits_sent: int = 0
    files_collected: int = 0
    seconds: float = 0.0
    idle: bool = False
    problems: tuple[str, ...] = ()
    done: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    dead_letters: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether a job did not succeed."""
        return bool(self.failures or self.dead_letters)


Listener = Callable[[RunStatus], None]
OnJob = Callable[[JobReport], None]


class JobTotals:
    """Counts the jobs of a run. It remembers only those whose last run failed."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        self._failed: set[str] = set()

    @property
    def failures(self) -> int:
        """The number of jobs whose last run failed or was rejected."""
        return len(self._failed)

    def add(self, report: JobReport) -> None:
        """Adds a run of a job."""
        if report.outcome in {JobOutcome.FAILED, JobOutcome.REJECTED}:
            self._failed.add(report.message_id)
            return
        self._failed.discard(report.message_id)
        if report.outcome is JobOutcome.DONE:
            name = report.queue.value
            self.done[name] = self.done.get(name, 0) + 1
