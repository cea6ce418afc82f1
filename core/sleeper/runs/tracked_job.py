"""Runs of jobs, as the tracker hears of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.tables.table_ref import TABLE_NAME_LENGTH_MAX, TableId


def record_rejection(
    instance: Instance, table_id: TableId, job_id: str, error: SleeperError
) -> None:
    """Records an ingest as rejected, for the reason that the error gives."""
    event = JobEvent(
        table_id,
        job_id,
        JobKind.INGEST,
        JobStep.REJECTED,
        instance.clock(),
        new_run_id(),
        reasons=(str(error)[:_REASON_CHARACTERS_MAX],),
    )
    instance.jobs.tracker.record(event)


def id_of_unknown_table(table_name: str | None, table_id: str | None) -> TableId:
    """What a message calls a table that is not known, cut to what a key may be."""
    return TableId((table_id or table_name or "")[:TABLE_NAME_LENGTH_MAX])


logger = logging.getLogger(__name__)
_REASON_CHARACTERS_MAX = 2_000
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What a run that did not fail tells: the rows it moved, None if it was done before.

    `is_queued` if the commit is left to another process.
    """

    rows: int | None
    is_queued: bool = False


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A job of a table. `task_id` is the task that runs it, `inputs` how many files it has.

    `run_id` is the run's, where whoever had it started made it up.
    """

    instance: Instance
    kind: JobKind
    table_id: TableId
    job_id: str
    task_id: str | None = None
    inputs: int | None = None
    run_id: str | None = None

    def run(self, work: Callable[[JobRunRef], R], end_of: Callable[[R], RunEnd]) -> R:
        """Does the work as one run of the job.

        A job that cannot ever succeed is tracked as rejected, any other error as a failure.
        """
        clock, record = self.instance.clock, self.instance.jobs.tracker.record
        run = self._new_run()
        record(run.event(JobStep.STARTED, clock(), inputs=self.inputs))
        try:
            result = work(run)
        except SleeperError as error:
            is_hopeless = isinstance(error, InvalidRequestError)
            step = JobStep.REJECTED if is_hopeless else JobStep.FAILED
            self._record_end(run.event(step, clock(), reasons=(str(error),)))
            raise
        except BaseException as error:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else repr(error)
            self._record_end(run.event(JobStep.FAILED, clock(), reasons=(reason,)))
            raise
        now_ms, end = clock(), end_of(result)
        finished = run.event(JobStep.FINISHED, now_ms, rows_read=end.rows, rows_written=end.rows)
        if end.is_queued:
            # The message is done: it must not return because of a tracker.
            self._record_end(finished)
        else:
            record(finished, run.event(JobStep.COMMITTED, now_ms))
        return result

    def reject(self, error: SleeperError) -> None:
        """It was refused before it was tried."""
        reasons = (str(error)[:_REASON_CHARACTERS_MAX],)
        event = self._new_run().event(JobStep.REJECTED, self.instance.clock(), reasons=reasons)
        self.instance.jobs.tracker.record(event)

    def _new_run(self) -> JobRunRef:
        return JobRunRef(
            self.table_id, self.job_id, self.kind, self.run_id or new_run_id(), self.task_id
        )

    def _record_end(self, end: JobEvent) -> None:
        """A tracker that does not answer, on a full disk perhaps, must not hide how it ended."""
        what = self.kind.value.replace("_", " ")
        logger.info("%s job %s", what, end.step.value, extra={"job_id": self.job_id})
        try:
            self.instance.jobs.tracker.record(end)
        except SleeperError:
            logger.warning("the tracker was not told", exc_info=True, extra={"job_id": self.job_id})
