"""What the tracker is told of one run of a job."""

import logging

from sleeper.clock import Clock
from sleeper.errors import SleeperError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.jobs.tracker import JobTracker
from sleeper.tables.table_ref import TableId

logger = logging.getLogger(__name__)


class RunRecord:
    """Tells the tracker of each step. A tracker that does not answer fails no run."""

    def __init__(
        self,
        tracker: JobTracker,
        table_id: TableId,
        job_id: str,
        task_id: str | None,
        clock: Clock,
    ) -> None:
        self._tracker = tracker
        self._table_id = table_id
        self._job_id = job_id
        self._task_id = task_id
        self._clock = clock
        self._run_id = new_run_id()

    def started(self) -> None:
        """The run has begun."""
        self._record(self._event(JobStep.STARTED))

    def finished_and_committed(self, rows_read: int, rows_written: int) -> None:
        """The output is written and stands in the state."""
        self._record(
            self._event(JobStep.FINISHED, rows_read=rows_read, rows_written=rows_written),
            self._event(JobStep.COMMITTED),
        )

    def committed_earlier(self, at_ms: int) -> None:
        """Another run committed the job then; it may have died before it could say so."""
        self._record(
            JobEvent(self._table_id, self._job_id, JobKind.COMPACTION, JobStep.COMMITTED, at_ms)
        )

    def failed(self, reason: str) -> None:
        """The run ended without a commit, because."""
        self._record(self._event(JobStep.FAILED, reasons=(reason,)))

    def _event(
        self,
        step: JobStep,
        rows_read: int | None = None,
        rows_written: int | None = None,
        reasons: tuple[str, ...] = (),
    ) -> JobEvent:
        return JobEvent(
            self._table_id,
            self._job_id,
            JobKind.COMPACTION,
            step,
            self._clock(),
            self._run_id,
            self._task_id,
            rows_read=rows_read,
            rows_written=rows_written,
            reasons=reasons,
        )

    def _record(self, *events: JobEvent) -> None:
        extra = {"table": self._table_id, "job_id": self._job_id, "task_id": self._task_id}
        for event in events:
            logger.info("compaction job %s", event.step.value, extra=extra)
        try:
            self._tracker.record(*events)
        except SleeperError:
            logger.warning("the tracker was not told", exc_info=True, extra=extra)
