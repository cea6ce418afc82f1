"""A compaction job as it is sent to the workers."""

import json
import logging
import secrets
from dataclasses import dataclass

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.jobs.tracker import JobTracker
from sleeper.partitions.partition import PartitionId
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


_INPUTS_SENT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """Merge these files of the partition into one.

    The state knows better: a worker merges what the job holds there. `inputs` are for
    people who look at the queue, and left out where they are very many.
    """

    id: str
    table_id: TableId
    partition_id: PartitionId
    inputs: tuple[str, ...]
    created_ms: int

    def to_json(self) -> str:
        """The message's body."""
        raw = {
            "jobId": self.id,
            "tableId": self.table_id,
            "partitionId": self.partition_id,
            "inputFiles": list(self.inputs) if len(self.inputs) <= _INPUTS_SENT_MAX else [],
            "createdMs": self.created_ms,
        }
        return json.dumps(raw, separators=(",", ":"))


def new_compaction_job_id() -> str:
    """A fresh random id. That of a released job is never used again."""
    return secrets.token_hex(12)


def compaction_job_from_json(body: str) -> CompactionJob:
    """The job of a message; InvalidRequestError if it is none."""
    try:
        raw = json.loads(body)
        inputs = tuple(str(path) for path in raw.get("inputFiles", ()))
        texts = [raw[name] for name in ("jobId", "tableId", "partitionId")]
        if not all(isinstance(text, str) and text for text in texts):
            raise TypeError("ids must be text")
        job_id, table_id, partition_id = texts
        return CompactionJob(
            job_id, TableId(table_id), PartitionId(partition_id), inputs, int(raw["createdMs"])
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidRequestError(
            f"not a compaction job: {body[:200]!r}: expected jobId, tableId, partitionId, "
            f"inputFiles and createdMs ({error!r})"
        ) from error
