"""What the tracker is told of one run of a job."""

import logging

from sleeper.clock import Clock
from sleeper.errors import SleeperError
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.jobs.tracker import JobTracker
from sleeper.tables.table_ref import TableId

logger = logging.getLogger(__name__)


class RunRecord:
    """Tells the tracker of each step of a `run`. A tracker that does not answer fails none."""

    def __init__(
        self,
        tracker: JobTracker,
        table_id: TableId,
        job_id: str,
        task_id: str | None,
        clock: Clock,
    ) -> None:
        self._tracker = tracker
        self._clock = clock
        self.run = JobRunRef(table_id, job_id, JobKind.COMPACTION, new_run_id(), task_id)

    def started(self) -> None:
        """The run has begun."""
        self._record(self.run.event(JobStep.STARTED, self._clock()))

    def finished(self, rows_read: int, rows_written: int, is_committed: bool) -> None:
        """The output is written. It stands in the state, or its commit is queued."""
        now_ms = self._clock()
        events = [
            self.run.event(JobStep.FINISHED, now_ms, rows_read=rows_read, rows_written=rows_written)
        ]
        if is_committed:
            events.append(self.run.event(JobStep.COMMITTED, now_ms))
        self._record(*events)

    def committed_earlier(self, at_ms: int) -> None:
        """Another run committed the job then; it may have died before it could say so."""
        run = self.run
        self._record(JobEvent(run.table_id, run.job_id, run.kind, JobStep.COMMITTED, at_ms))

    def failed(self, reason: str) -> None:
        """The run ended without a commit, because."""
        self._record(self.run.event(JobStep.FAILED, self._clock(), reasons=(reason,)))

    def _record(self, *events: JobEvent) -> None:
        run = self.run
        extra = {"table": run.table_id, "job_id": run.job_id, "task_id": run.task_id}
        for event in events:
            logger.info("compaction job %s", event.step.value, extra=extra)
        try:
            self._tracker.record(*events)
        except SleeperError:
            logger.warning("the tracker was not told", exc_info=True, extra=extra)
