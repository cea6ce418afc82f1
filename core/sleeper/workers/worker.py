"""Takes jobs off queues and runs them, one after another.

A worker process of a local instance takes from all its queues, a task on AWS from one. Both
keep the message at hand in flight while they work, take it off its queue when the job is
settled, and tell the task tracker of their start and end.
"""

import logging
import threading
import time
from dataclasses import dataclass

from sleeper.bulk_export.service import run_bulk_export_message
from sleeper.bulk_import.persistent import run_persistent_import
from sleeper.compaction.service import run_compaction_message
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.ingest.service import run_ingest_message
from sleeper.instance import Instance
from sleeper.jobs.event import TaskEvent, TaskStep
from sleeper.jobs.process import this_process
from sleeper.jobs.queue import Message, MessageQueue, QueueName
from sleeper.properties.engine import QUEUE_VISIBILITY_SECONDS
from sleeper.properties.instance import (
    COMPACTION_VISIBILITY_SECONDS,
    INGEST_KEEPALIVE_SECONDS,
    INGEST_VISIBILITY_SECONDS,
)
from sleeper.query_service.run import run_leaf_query_message
from sleeper.query_service.service import run_query_message
from sleeper.renewal import Renewal
from sleeper.runs.heartbeat import heartbeat
from sleeper.runs.retry import SETTLED_ERRORS, retry_seconds
from sleeper.splitting.service import run_split_message

logger = logging.getLogger(__name__)

_VISIBILITY = {
    QueueName.INGEST: INGEST_VISIBILITY_SECONDS,
    QueueName.COMPACTION: COMPACTION_VISIBILITY_SECONDS,
    QueueName.SPLITTING: QUEUE_VISIBILITY_SECONDS,
    QueueName.BULK_EXPORT: QUEUE_VISIBILITY_SECONDS,
    QueueName.BULK_IMPORT_PERSISTENT_EMR: QUEUE_VISIBILITY_SECONDS,
    QueueName.QUERY: QUEUE_VISIBILITY_SECONDS,
    QueueName.LEAF_QUERY: QUEUE_VISIBILITY_SECONDS,
}
_IDLE_WAIT_SECONDS = 0.1
_UNAVAILABLE_WAIT_SECONDS = 2.0
# Minutes in all: a message has few tries, and somebody may have to make room on a disk.
_LOCAL_RETRY_SECONDS = (10.0, 120.0, 600.0)
_LOCAL_SOON_SECONDS = (2.0, 10.0, 30.0)
_AWAITED = (QueueName.QUERY, QueueName.LEAF_QUERY)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the tracker calls a worker, where it takes jobs from, and when it ends by itself.

    The first queue that has a message comes first. It waits for one so long at each queue,
    so one of several queues should not wait. A job that failed is tried again after the first of
    `retry_seconds`, then the second, and so on; after the last one each time from then on.
    `soon_seconds`, if given, are the delays where a caller waits for the answer, and after
    errors that waiting does not cure.
    """

    kind: str
    queues: tuple[QueueName, ...]
    wait_seconds: float = 0.0
    idle_stop_seconds: float | None = None
    retry_seconds: tuple[float, ...] = (2.0,)
    soon_seconds: tuple[float, ...] | None = None

    def retry_delays(self, name: QueueName, error: Exception) -> tuple[float, ...]:
        """The delays of a job of that queue that failed with this error."""
        if self.soon_seconds is None:
            return self.retry_seconds
        may_pass = isinstance(error, UnavailableError | ConflictError) or is_transient(error)
        if may_pass and name not in _AWAITED:
            return self.retry_seconds
        return self.soon_seconds


# Somebody waits for a query. Splits are quick, and everything after them is better placed.
LOCAL_WORKER = WorkerSettings(
    "worker",
    (
        QueueName.LEAF_QUERY,
        QueueName.QUERY,
        QueueName.SPLITTING,
        QueueName.COMPACTION,
        QueueName.INGEST,
    ),
    retry_seconds=_LOCAL_RETRY_SECONDS,
    soon_seconds=_LOCAL_SOON_SECONDS,
)


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What one job moved."""

    rows_read: int = 0
    rows_written: int = 0


class GivenBackError(BaseException):
    """The worker was told to end at once: the job at hand goes back to its queue."""


class Worker:
    """Runs one job after another, until it is told to stop or was idle for long."""

    def __init__(
        self,
        instance: Instance,
        task_id: str,
        stop: threading.Event,
        settings: WorkerSettings = LOCAL_WORKER,
    ) -> None:
        self._instance = instance
        self._task_id = task_id
        self._stop = stop
        self._settings = settings
        self._at_hand: tuple[MessageQueue, Message] | None = None
        self._runs_job = False
        self._gives_back = False
        self._jobs = 0
        self._read = 0
        self._written = 0

    def run(self) -> None:
        """Until the end; the task tracker hears of it and of the start."""
        self._record(TaskStep.STARTED, process=this_process())
        reason: str | None = None
        try:
            with heartbeat(self._instance, self._task_id, self._settings.kind):
                self._run_jobs()
        except GivenBackError:
            reason = "told to end at once"
        finally:
            self._record_end(reason)

    def _run_jobs(self) -> None:
        busy_at = time.monotonic()
        while not self._stop.is_set():
            try:
                if self.run_one():
                    busy_at = time.monotonic()
                    continue
                pause = _IDLE_WAIT_SECONDS
            except UnavailableError as error:
                # A full disk, perhaps. What was in flight returns by itself.
                logger.warning("waiting for the instance: %s", error)
                pause = _UNAVAILABLE_WAIT_SECONDS
            idle_seconds = time.monotonic() - busy_at
            longest = self._settings.idle_stop_seconds
            if longest is not None and idle_seconds >= longest:
                logger.info("idle for %d s", idle_seconds, extra={"task_id": self._task_id})
                return
            self._stop.wait(pause)

    def run_one(self) -> bool:
        """Takes one message from the first queue that has one; False if none has."""
        for name in self._settings.queues:
            queue = self._instance.jobs.queue(name)
            for message in queue.receive(wait_seconds=self._settings.wait_seconds):
                self._at_hand = (queue, message)
                self._handle(name, queue, message)
                self._at_hand = None
                return True
        return False

    def give_back(self) -> None:
        """Tells it to end at once. For a signal's handler, in the thread that runs the worker.

        Interrupts a job, and nothing else: a message that is being received is not lost.
        """
        self._gives_back = True
        self._stop.set()
        if self._runs_job:
            raise GivenBackError

    def abandon(self) -> None:
        """Gives back what is at hand while the job still runs. The process must end then.

        For another thread, when an interruption does not reach the job in time.
        """
        if self._at_hand is not None:
            queue, message = self._at_hand
            queue.give_back(message.receipt)
        self._record_end("told to end at once, and ended in the midst of a job")

    def _handle(self, name: QueueName, queue: MessageQueue, message: Message) -> None:
        try:
            with visibility_renewal(queue, message, *self._visibility(name)):
                totals = self._run_message(name, message)
        except SETTLED_ERRORS[name] as error:
            logger.warning("%s job dropped: %s", name.value, error)
            totals = JobTotals()
        except SleeperError as error:
            logger.warning("%s job given back: %s", name.value, error)
            self._return(name, queue, message, error)
            return
        except GivenBackError:
            queue.give_back(message.receipt)
            raise
        except Exception as error:
            logger.exception("%s job failed", name.value)
            self._return(name, queue, message, error)
            return
        queue.delete(message.receipt)
        self._jobs += 1
        self._read += totals.rows_read
        self._written += totals.rows_written

    def _return(
        self, name: QueueName, queue: MessageQueue, message: Message, error: Exception
    ) -> None:
        delays = self._settings.retry_delays(name, error)
        queue.give_back(message.receipt, retry_seconds(message, delays))

    def _run_message(self, name: QueueName, message: Message) -> JobTotals:
        self._runs_job = True
        try:
            if self._gives_back:
                raise GivenBackError
            return self._run_job(name, message)
        except Exception as error:
            if self._gives_back:
                # Native code makes an error of its own of an interruption: no word on the job.
                raise GivenBackError from error
            raise
        finally:
            self._runs_job = False

    def _run_job(self, name: QueueName, message: Message) -> JobTotals:
        match name:
            case QueueName.INGEST:
                rows = run_ingest_message(self._instance, message, self._task_id).rows
                return JobTotals(rows, rows)
            case QueueName.COMPACTION:
                return JobTotals(
                    *run_compaction_message(self._instance, message.body, self._task_id)
                )
            case QueueName.SPLITTING:
                run_split_message(self._instance, message.body)
                return JobTotals()
            case QueueName.BULK_EXPORT:
                rows = run_bulk_export_message(self._instance, message, self._task_id).rows
                return JobTotals(rows, rows)
            case QueueName.BULK_IMPORT_PERSISTENT_EMR:
                run_persistent_import(self._instance, message)
                return JobTotals()
            case QueueName.QUERY:
                return JobTotals(run_query_message(self._instance, message))
            case QueueName.LEAF_QUERY:
                return JobTotals(run_leaf_query_message(self._instance, message))
            case _:
                raise InvalidRequestError(f"a worker takes nothing from queue {name.value}")

    def _visibility(self, name: QueueName) -> tuple[int, float]:
        """For how long a message is kept in flight, and how often."""
        properties = self._instance.properties()
        seconds = properties.get(_VISIBILITY[name])
        if name is QueueName.INGEST:
            return seconds, properties.get(INGEST_KEEPALIVE_SECONDS)
        return seconds, seconds / 3

    def _record_end(self, reason: str | None) -> None:
        self._record(
            TaskStep.ENDED,
            jobs=self._jobs,
            rows_read=self._read,
            rows_written=self._written,
            reason=reason,
        )

    def _record(self, step: TaskStep, **more: object) -> None:
        now = self._instance.clock()
        event = TaskEvent(self._task_id, self._settings.kind, step, now, **more)  # type: ignore[arg-type]
        self._instance.jobs.tasks.record(event)


def visibility_renewal(
    queue: MessageQueue, message: Message, visibility_seconds: float, period_seconds: float
) -> Renewal:
    """Returns the renewal of the message's visibility timeout while its job runs."""
    return Renewal(
        "visibility timeout renewal",
        lambda: queue.extend(message.receipt, visibility_seconds),
        period_seconds,
        ends_on=StateMovedOnError,
        extra={"message_id": message.message_id},
    )
