"""Events of jobs and tasks."""

import secrets
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from sleeper.json_codec import Member
from sleeper.systems import missing_members, queues
from sleeper.tables import TableId


class JobKind(Enum):
    """The kind of a job and of the task that runs it. Queues with tasks have a kind each."""

    INGEST = "ingest"
    BULK_IMPORT = "bulk_import"
    BULK_EXPORT = "bulk_export"
    COMPACTION = "compaction"
    SPLIT = "split"
    QUERY = "query"
    DELETION = "deletion"
    vars().update(missing_members(vars(), (each.name for each in queues().values() if each.tasks)))


class JobStep(Enum):
    """A step of a job (the first) or of one of its runs (the others)."""

    CREATED = "created"
    ACCEPTED = "accepted"
    STARTED = "started"
    FINISHED = "finished"
    COMMITTED = "committed"
    FAILED = "failed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One step of a job. A job has at most one event of each step per run.

    `run_id` is empty for events outside any run: the creation, or a rejection before a run.
    `at_ms` is the time of the event. `inputs` is the number of files; rows belong to FINISHED,
    reasons to FAILED and REJECTED. In ACCEPTED, of a run that a Spark platform accepted,
    `task_id` is the platform's name of the run. Runs that read a source have it in STARTED and,
    more exactly, in FINISHED, where `bytes` are those of the written files and `number` is that
    of the transaction. `rows_rejected` is the number of rows that an ingest set aside, None for 0.
    """

    table_id: TableId
    job_id: str
    kind: JobKind
    step: JobStep
    at_ms: int
    run_id: str = ""
    task_id: str | None = None
    inputs: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    reasons: tuple[str, ...] = ()
    bytes: Annotated[int | None, Member(optional=True)] = None
    number: Annotated[int | None, Member(optional=True)] = None
    source: Annotated[str | None, Member(optional=True)] = None
    rows_rejected: Annotated[int | None, Member(optional=True)] = None


@dataclass(frozen=True, slots=True)
class JobRunRef:
    """A run of a job, the subject of its events."""

    table_id: TableId
    job_id: str
    kind: JobKind
    run_id: str
    task_id: str | None = None

    def event(
        self,
        step: JobStep,
        at_ms: int,
        *,
        inputs: int | None = None,
        rows_read: int | None = None,
        rows_written: int | None = None,
        reasons: tuple[str, ...] = (),
        bytes: int | None = None,
        number: int | None = None,
        source: str | None = None,
        rows_rejected: int | None = None,
    ) -> JobEvent:
        """Returns the event of a step of the run."""
        return JobEvent(
            self.table_id,
            self.job_id,
            self.kind,
            step,
            at_ms,
            self.run_id,
            self.task_id,
            inputs,
            rows_read,
            rows_written,
            reasons,
            bytes,
            number,
            source,
            rows_rejected,
        )


class TaskStep(Enum):
    """A task's start, its end, or a heartbeat in between."""

    STARTED = "started"
    HEARTBEAT = "heard"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """The start, a heartbeat or the end of a task. Trackers keep the latest heartbeat.

    `process` is the platform's name of the process. Totals belong to the end; `reason` is the
    cause of an end that the task did not record itself.
    """

    task_id: str
    kind: str
    step: TaskStep
    at_ms: int
    process: str | None = None
    jobs: int | None = None
    rows_read: int | None = None
    rows_written: int | None = None
    reason: str | None = None


def new_run_id() -> str:
    """Returns a random id of a run."""
    return secrets.token_hex(8)


def new_task_id() -> str:
    """Returns a random id of a task."""
    return secrets.token_hex(8)
