"""Runs of jobs, as the tracker hears of them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.tables.table_ref import TableId
from sleeper.wiring.instance import Instance

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A job of a table. `task_id` is the task that runs it, `inputs` how many files it has."""

    instance: Instance
    kind: JobKind
    table_id: TableId
    job_id: str
    task_id: str | None = None
    inputs: int | None = None

    def run(self, work: Callable[[], R], rows_of: Callable[[R], int | None]) -> R:
        """Does the work as one run of the job. `rows_of` its result: None if done before.

        A job that cannot ever succeed is tracked as rejected, any other error as a failure.
        """
        run_id = new_run_id()
        self.instance.jobs.record(self._event(JobStep.STARTED, run_id, inputs=self.inputs))
        try:
            result = work()
        except SleeperError as error:
            is_hopeless = isinstance(error, InvalidRequestError)
            step = JobStep.REJECTED if is_hopeless else JobStep.FAILED
            self._record_end(self._event(step, run_id, reasons=(str(error),)))
            raise
        except BaseException as error:
            self._record_end(self._event(JobStep.FAILED, run_id, reasons=(repr(error),)))
            raise
        moved = rows_of(result)
        rows = {} if moved is None else {"rows_read": moved, "rows_written": moved}
        self.instance.jobs.record(
            self._event(JobStep.FINISHED, run_id, **rows), self._event(JobStep.COMMITTED, run_id)
        )
        return result

    def reject(self, error: SleeperError) -> None:
        """It was refused before it was tried."""
        event = self._event(JobStep.REJECTED, new_run_id(), reasons=(str(error),))
        self.instance.jobs.record(event)

    def _event(self, step: JobStep, run_id: str, **more: object) -> JobEvent:
        now = self.instance.clock()
        return JobEvent(
            self.table_id,
            self.job_id,
            self.kind,
            step,
            now,
            run_id,
            self.task_id,
            **more,  # type: ignore[arg-type]
        )

    def _record_end(self, end: JobEvent) -> None:
        """A tracker that does not answer, on a full disk perhaps, must not hide why it failed."""
        logger.info("%s job %s", self.kind.value, end.step.value, extra={"job_id": self.job_id})
        try:
            self.instance.jobs.record(end)
        except SleeperError:
            logger.warning("the tracker was not told", exc_info=True, extra={"job_id": self.job_id})
