"""A worker: receives messages and runs their jobs, one at a time.

A worker process of a local instance polls all its queues, a task on AWS polls one. Both renew the
visibility timeout of the message while its job runs, delete the message when the job is settled,
and record their start and end in the task tracker.

SIGTERM returns the current message to its queue and ends the process. The interruption reaches
the job between two batches, which may take long in a sort or merge, and the sender of the signal
kills the process after a while (ECS after 30 seconds). So if the job does not stop in time, a
thread returns the message and exits the process.
"""

import logging
import os
import signal
import threading
import time
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError, SleeperError, StateMovedOnError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.process import watched_sigterm
from sleeper.jobs.queue import LOCAL_QUEUES, Message, MessageQueue, QueueName
from sleeper.properties.instance import INGEST_KEEPALIVE_SECONDS
from sleeper.renewal import Renewal
from sleeper.runs.retry_policy import (
    LOCAL_RETRY_POLICIES,
    RETRY_POLICIES,
    VISIBILITY_SECONDS,
    RetryPolicy,
    return_message,
)
from sleeper.runs.task import TaskRecord
from sleeper.systems import load, queues
from sleeper.workers.job_report import report_failure, report_job
from sleeper.workers.run_status import OnJob

logger = logging.getLogger(__name__)

_IDLE_WAIT_SECONDS = 0.1
_UNAVAILABLE_WAIT_SECONDS = 2.0
_STOP_SECONDS_MAX = 15.0
_INTERRUPTED_STATUS = 70


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker. `kind` is its kind in the task tracker.

    Queues are polled in priority order. `wait_seconds` is the long-poll time per queue; use 0 with
    several queues. The worker ends after `idle_stop_seconds` without a message, if given.
    """

    kind: str
    queues: tuple[QueueName, ...]
    wait_seconds: float = 0.0
    idle_stop_seconds: float | None = None
    retry_policies: dict[QueueName, RetryPolicy] = field(default_factory=lambda: RETRY_POLICIES)


LOCAL_WORKER = WorkerSettings(
    "worker",
    tuple(sorted(LOCAL_QUEUES, key=lambda name: LOCAL_QUEUES[name].priority)),
    retry_policies=LOCAL_RETRY_POLICIES,
)


class InterruptedJobError(BaseException):
    """The worker was interrupted: its message returns to the queue."""


class Worker:
    """Runs jobs until it is stopped or has been idle for its maximum time."""

    def __init__(
        self,
        instance: Instance,
        task_id: str,
        stop: threading.Event,
        settings: WorkerSettings = LOCAL_WORKER,
        on_job: OnJob | None = None,
    ) -> None:
        self._instance = instance
        self._task = TaskRecord(instance, settings.kind, task_id)
        self._stop = stop
        self._settings = settings
        self._on_job = on_job
        self._current: tuple[MessageQueue, Message] | None = None
        self._runs_job = False
        self._is_interrupted = False

    def run(self) -> None:
        """Runs jobs until the end, and records the start and end of the task."""
        with self._task.recorded():
            try:
                self._run_jobs()
            except InterruptedJobError:
                self._task.reason = "interrupted"

    def _run_jobs(self) -> None:
        busy_at = time.monotonic()
        while not self._stop.is_set():
            try:
                if self.run_one():
                    busy_at = time.monotonic()
                    continue
                pause = _IDLE_WAIT_SECONDS
            except UnavailableError as error:
                # For example a full disk. A message in flight returns by itself.
                logger.warning("waiting for the instance: %s", error)
                pause = _UNAVAILABLE_WAIT_SECONDS
            idle_seconds = time.monotonic() - busy_at
            idle_max = self._settings.idle_stop_seconds
            if idle_max is not None and idle_seconds >= idle_max:
                logger.info("idle for %d s", idle_seconds, extra={"task_id": self._task.id})
                return
            self._stop.wait(pause)

    def run_one(self) -> bool:
        """Receives and runs a message of the first queue that has one. False if none has."""
        for name in self._settings.queues:
            queue = self._instance.jobs.queue(name)
            for message in queue.receive(wait_seconds=self._settings.wait_seconds):
                self._current = (queue, message)
                self._handle(name, queue, message)
                self._current = None
                return True
        return False

    def interrupt(self) -> None:
        """Ends the worker at once, from a signal handler in the worker's thread.

        Interrupts only jobs: a message that is being received is not lost.
        """
        self._is_interrupted = True
        self._stop.set()
        if self._runs_job:
            raise InterruptedJobError

    def abandon(self) -> None:
        """Returns the current message while its job still runs. The process must exit then.

        For another thread, if an interruption does not reach the job in time.
        """
        if self._current is not None:
            queue, message = self._current
            queue.release(message.receipt)
        self._task.reason = "interrupted, and exited during a job"
        self._task.record_end()

    def _handle(self, name: QueueName, queue: MessageQueue, message: Message) -> None:
        policy = self._settings.retry_policies[name]
        start = time.monotonic()
        failure: Exception | None = None
        try:
            with visibility_renewal(queue, message, *self._visibility(name)):
                rows_read, rows_written = self._run_message(name, message)
        except policy.dropped as error:
            logger.log(self._level, "%s job dropped: %s", name.value, error)
            rows_read, rows_written, failure = 0, 0, error
        except InterruptedJobError:
            queue.release(message.receipt)
            raise
        except Exception as error:
            if isinstance(error, SleeperError):
                logger.log(self._level, "%s job returned to its queue: %s", name.value, error)
            else:
                logger.exception("%s job failed", name.value)
            reason, delay_seconds = policy.judge(message, error, self._instance.clock())
            return_message(queue, message, delay_seconds, reason)
            self._report(name, message, start, 0, error, delay_seconds)
            return
        queue.delete(message.receipt)
        self._task.add_job(rows_read, rows_written)
        self._report(name, message, start, rows_written or rows_read, failure)

    @property
    def _level(self) -> int:
        """The level of warnings on jobs, whose reports name the reason if there are reports."""
        return logging.WARNING if self._on_job is None else logging.INFO

    def _report(
        self,
        name: QueueName,
        message: Message,
        start: float,
        rows: int,
        error: Exception | None,
        retry_seconds: float | None = None,
    ) -> None:
        if self._on_job is None:
            return
        seconds = time.monotonic() - start
        if error is None:
            report = report_job(self._instance, name, message, rows, seconds)
        else:
            report = report_failure(self._instance, name, message, error, seconds, retry_seconds)
        self._on_job(report)

    def _run_message(self, name: QueueName, message: Message) -> tuple[int, int]:
        self._runs_job = True
        try:
            if self._is_interrupted:
                raise InterruptedJobError
            return self._run_job(name, message)
        except Exception as error:
            if self._is_interrupted:
                # Native code replaces the interruption with its own error.
                raise InterruptedJobError from error
            raise
        finally:
            self._runs_job = False

    def _run_job(self, name: QueueName, message: Message) -> tuple[int, int]:
        """Returns the numbers of rows read and written."""
        run = queues()[name.value].run
        if run is None:
            raise InvalidRequestError(f"workers do not poll queue {name.value}")
        counts: tuple[int, int] = load(run)(self._instance, message, self._task.id)
        return counts

    def _visibility(self, name: QueueName) -> tuple[int, float]:
        """Returns the visibility timeout and the period of its renewal, in seconds."""
        properties = self._instance.properties()
        seconds = properties.get(VISIBILITY_SECONDS[name])
        if name is QueueName.INGEST:
            return seconds, properties.get(INGEST_KEEPALIVE_SECONDS)
        return seconds, seconds / 3


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


def run_worker_process(worker: Worker) -> None:
    """Runs the worker in this process's main thread, with SIGTERM as its interruption."""

    def give_up() -> None:
        logger.warning(
            "the job did not stop within %d s: returning it to its queue", _STOP_SECONDS_MAX
        )
        try:
            worker.abandon()
        except SleeperError as error:
            logger.warning("could not return the job: %s", error)
        os._exit(_INTERRUPTED_STATUS)

    signal.signal(signal.SIGTERM, lambda *_: worker.interrupt())
    with watched_sigterm(_STOP_SECONDS_MAX, give_up) as ended:
        try:
            worker.run()
        finally:
            ended.set()
