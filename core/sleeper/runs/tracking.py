"""Tracking of runs: acceptance, start, result, failure and rejection of every kind of job."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.jobs.ingest_job import INGEST_JOBS, IngestJob
from sleeper.jobs.queue import Message
from sleeper.jobs.tracker import JobTracker
from sleeper.statestore.fold import APPLIED_ID_DAYS, DAY_MS
from sleeper.tables import TABLE_NAME_LENGTH_MAX, TableId, find_table

logger = logging.getLogger(__name__)
_REASON_CHARACTERS_MAX = 2_000
_UNKNOWN_TABLE = TableId("")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunResult:
    """The rows of a run without an error; None if the job was already done.

    `is_queued` if another process commits it. `bytes`, `number` and `source` are those of an event,
    and `rejected` is the number of rows that were set aside.
    """

    rows: int | None
    is_queued: bool = False
    bytes: int | None = None
    number: int | None = None
    source: str | None = None
    rejected: int | None = None


@dataclass(frozen=True, slots=True)
class RunTracker:
    """Records the steps of one run of a job in the job tracker."""

    tracker: JobTracker
    clock: Clock
    run: JobRunRef

    def execute(
        self,
        work: Callable[[JobRunRef], R],
        describe: Callable[[R], RunResult],
        inputs: int | None = None,
        source: str | None = None,
    ) -> R:
        """Returns the result of the work and records the run's start and end.

        `inputs` is the number of files, `source` describes another source. The run is rejected on
        InvalidRequestError, failed on any other error. An error of the tracker is raised from the
        start and from a commit, so that the message returns; it never replaces an error of the
        work.
        """
        started = self.run.event(JobStep.STARTED, self.clock(), inputs=inputs, source=source)
        self.tracker.record(started)
        try:
            result = work(self.run)
        except BaseException as error:
            self.record_failure(error)
            raise
        done = describe(result)
        details = {
            "bytes": done.bytes,
            "number": done.number,
            "source": done.source,
            "rows_rejected": done.rejected,
        }
        events = self._result(done.rows, done.rows, not done.is_queued, **details)
        if done.is_queued:
            # The committer may have committed already, so the message must not return.
            self.try_record(*events)
        else:
            self.tracker.record(*events)
        return result

    def try_record_start(self) -> None:
        """Records the start. Logs an error of the tracker."""
        self.try_record(self.run.event(JobStep.STARTED, self.clock()))

    def try_record_result(self, rows_read: int, rows_written: int, is_committed: bool) -> None:
        """Records the end of the work, and its commit. Logs an error of the tracker."""
        self.try_record(*self._result(rows_read, rows_written, is_committed))

    def try_record_earlier_commit(self, at_ms: int) -> None:
        """Records the commit of another run, which may have died before it recorded it."""
        run = self.run
        self.try_record(JobEvent(run.table_id, run.job_id, run.kind, JobStep.COMMITTED, at_ms))

    def record_failure(self, error: BaseException) -> None:
        """Records the run as rejected on InvalidRequestError, else failed. Never raises.

        A tracker error, for example on a full disk, must not hide the cause.
        """
        step = JobStep.REJECTED if isinstance(error, InvalidRequestError) else JobStep.FAILED
        if isinstance(error, KeyboardInterrupt):
            reason = "interrupted"
        else:
            reason = str(error) if isinstance(error, SleeperError) else repr(error)
        self.try_record(self.run.event(step, self.clock(), reasons=(reason,)))

    def reject(self, error: SleeperError) -> None:
        """Records the job as rejected before it was tried."""
        reasons = (str(error)[:_REASON_CHARACTERS_MAX],)
        self.tracker.record(self.run.event(JobStep.REJECTED, self.clock(), reasons=reasons))

    @contextmanager
    def reject_errors(self) -> Iterator[None]:
        """Records the job as rejected if the block finds its request invalid or its table missing.

        Raises InvalidRequestError then.
        """
        try:
            yield
        except (InvalidRequestError, NotFoundError) as error:
            self.reject(error)
            raise InvalidRequestError(str(error)) from error

    def accept(self, platform_run: str, inputs: int) -> None:
        """Records that a platform accepted the run under that name."""
        run = self.run
        accepted = JobRunRef(run.table_id, run.job_id, run.kind, run.run_id, platform_run)
        self.tracker.record(accepted.event(JobStep.ACCEPTED, self.clock(), inputs=inputs))

    def try_record(self, *events: JobEvent) -> None:
        """Records events. Logs an error of the tracker."""
        run = self.run
        extra = {"table": run.table_id, "job_id": run.job_id, "task_id": run.task_id}
        kind = run.kind.value.replace("_", " ")
        for event in events:
            logger.info("%s job %s", kind, event.step.value, extra=extra)
        try:
            self.tracker.record(*events)
        except SleeperError:
            logger.warning("could not record job status", exc_info=True, extra=extra)

    def _result(
        self,
        rows_read: int | None,
        rows_written: int | None,
        is_committed: bool,
        **details: Any,
    ) -> list[JobEvent]:
        now_ms = self.clock()
        finished = self.run.event(
            JobStep.FINISHED, now_ms, rows_read=rows_read, rows_written=rows_written, **details
        )
        return [finished, self.run.event(JobStep.COMMITTED, now_ms)] if is_committed else [finished]


def track_run(
    instance: Instance,
    kind: JobKind,
    table_id: TableId,
    job_id: str,
    task_id: str | None = None,
    run_id: str | None = None,
) -> RunTracker:
    """Returns the tracker of a new run. `run_id` is for a run that has an id already."""
    run = JobRunRef(table_id, job_id, kind, run_id or new_run_id(), task_id)
    return RunTracker(instance.jobs.tracker, instance.clock, run)


def parse_file_job(instance: Instance, message: Message, kind: JobKind) -> IngestJob:
    """Parses the message of an ingest or a bulk import.

    InvalidRequestError, recorded as a rejection under the message's id, if it is invalid. Also if
    it is as old as the ids of committed jobs that the state keeps (it waited in a queue or among
    dead letters): its commit could not be recognized as a repetition.
    """
    with track_run(instance, kind, _UNKNOWN_TABLE, message.message_id).reject_errors():
        job = INGEST_JOBS.parse(message.body, message.message_id)
        instance.storage.sources.check_message(job.files)
    table_id = unknown_table_id(job.table_name, job.table_id)
    with track_run(instance, kind, table_id, job.id).reject_errors():
        check_age(instance, message, f"ingest job {job.id}", "if its rows are not there")
    return job


def check_age(instance: Instance, message: Message, what: str, condition: str) -> None:
    """Raises InvalidRequestError for a message as old as the ids that the state keeps.

    `what` names the job, and `condition` says when to send it again.
    """
    age_ms = instance.clock() - message.sent_ms
    if age_ms > (APPLIED_ID_DAYS - 1) * DAY_MS:
        raise InvalidRequestError(
            f"{what} was sent {age_ms // DAY_MS} days ago: ids of committed jobs "
            f"are kept {APPLIED_ID_DAYS} days, so send it again {condition}"
        )


class TableJob(Protocol):
    """A job of a table that its message names by name or by id."""

    @property
    def id(self) -> str: ...
    @property
    def table_name(self) -> str | None: ...
    @property
    def table_id(self) -> str | None: ...


def find_job_table(instance: Instance, kind: JobKind, job: TableJob) -> OpenTable:
    """Returns the table of a job. InvalidRequestError, recorded as a rejection, if none exists."""
    table_id = unknown_table_id(job.table_name, job.table_id)
    with track_run(instance, kind, table_id, job.id).reject_errors():
        ref = find_table(instance.tables.index, job.table_name, job.table_id)
    return OpenTable(instance, ref)


def unknown_table_id(table_name: str | None, table_id: str | None) -> TableId:
    """Returns a message's id or name of an unknown table, cut to the length of a key."""
    return TableId((table_id or table_name or _UNKNOWN_TABLE)[:TABLE_NAME_LENGTH_MAX])
