"""A worker process of a local instance: takes jobs off the queues until it is told to stop.

The process that started it holds the other end of its standard input: when that closes,
because the other stopped or was killed, the worker ends after the job at hand. SIGTERM
gives the job back. Workers are fresh processes, never forks.
"""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.jobs.event import TaskEvent, TaskStep, new_task_id
from sleeper.jobs.queue import Message, MessageQueue
from sleeper.local.process import this_process
from sleeper.properties.engine import QUEUE_VISIBILITY_SECONDS
from sleeper.properties.instance import COMPACTION_VISIBILITY_SECONDS, INGEST_VISIBILITY_SECONDS
from sleeper.wiring.compaction_running import run_compaction_message
from sleeper.wiring.ingest import run_ingest_message
from sleeper.wiring.instance import Instance
from sleeper.wiring.opening import open_instance
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.splitting import run_split_message

logger = logging.getLogger(__name__)

TASK_KIND = "worker"
# Splits come first: they are quick, and everything after them is better placed.
_ORDER = (QueueName.SPLITTING, QueueName.COMPACTION, QueueName.INGEST)
_VISIBILITY = {
    QueueName.INGEST: INGEST_VISIBILITY_SECONDS,
    QueueName.COMPACTION: COMPACTION_VISIBILITY_SECONDS,
    QueueName.SPLITTING: QUEUE_VISIBILITY_SECONDS,
}
# Trying the message again changes nothing; the tracker has the reason. What else a table
# needs is found anew from its state, but an ingest is only in its message: where a person
# has to mend something first, that must not be lost.
_SETTLED: dict[QueueName, tuple[type[SleeperError], ...]] = {
    QueueName.INGEST: (InvalidRequestError, NotFoundError),
    QueueName.COMPACTION: (InvalidRequestError, NotFoundError, StateMovedOnError, DataError),
    QueueName.SPLITTING: (InvalidRequestError, NotFoundError, StateMovedOnError, DataError),
}
_IDLE_WAIT_SECONDS = 0.1
_RETRY_DELAY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What one job moved."""

    rows_read: int = 0
    rows_written: int = 0


class GivenBackError(BaseException):
    """The worker was told to end at once: the job at hand goes back to its queue."""


class Worker:
    """Runs one job after another."""

    def __init__(self, instance: Instance, task_id: str, stop: threading.Event) -> None:
        self._instance = instance
        self._task_id = task_id
        self._stop = stop
        self._jobs = 0
        self._read = 0
        self._written = 0

    def run(self) -> None:
        """Until it is told to stop; the task tracker hears of start and end."""
        self._record(TaskStep.STARTED, process=this_process())
        reason: str | None = None
        try:
            while not self._stop.is_set():
                try:
                    is_idle = not self.run_one()
                except UnavailableError as error:
                    # A full disk, perhaps. What was in flight returns by itself.
                    logger.warning("waiting for the instance: %s", error)
                    self._stop.wait(_RETRY_DELAY_SECONDS)
                    continue
                if is_idle:
                    self._stop.wait(_IDLE_WAIT_SECONDS)
        except GivenBackError:
            reason = "told to end at once"
        finally:
            self._record(
                TaskStep.ENDED,
                jobs=self._jobs,
                rows_read=self._read,
                rows_written=self._written,
                reason=reason,
            )

    def run_one(self) -> bool:
        """Takes one message from the first queue that has one; False if none has."""
        for name in _ORDER:
            queue = self._instance.queue(name)
            for message in queue.receive():
                self._handle(name, queue, message)
                return True
        return False

    def _handle(self, name: QueueName, queue: MessageQueue, message: Message) -> None:
        visibility = self._instance.properties().get(_VISIBILITY[name])
        try:
            with _kept_in_flight(queue, message, visibility):
                totals = self._run_message(name, message)
        except _SETTLED[name] as error:
            logger.warning("%s job dropped: %s", name.value, error)
            totals = JobTotals()
        except SleeperError as error:
            logger.warning("%s job given back: %s", name.value, error)
            queue.give_back(message.receipt, _RETRY_DELAY_SECONDS)
            return
        except GivenBackError:
            queue.give_back(message.receipt)
            raise
        except Exception:
            logger.exception("%s job failed", name.value)
            queue.give_back(message.receipt, _RETRY_DELAY_SECONDS)
            return
        queue.delete(message.receipt)
        self._jobs += 1
        self._read += totals.rows_read
        self._written += totals.rows_written

    def _run_message(self, name: QueueName, message: Message) -> JobTotals:
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
            case _:
                raise InvalidRequestError(f"a worker takes nothing from queue {name.value}")

    def _record(self, step: TaskStep, **more: object) -> None:
        now = self._instance.clock()
        event = TaskEvent(self._task_id, TASK_KIND, step, now, **more)  # type: ignore[arg-type]
        self._instance.tasks.record(event)


@contextmanager
def _kept_in_flight(
    queue: MessageQueue, message: Message, visibility_seconds: int
) -> Iterator[None]:
    """Extends the message's visibility at a third of its time, while the job runs."""
    done = threading.Event()

    def extend() -> None:
        while not done.wait(visibility_seconds / 3):
            try:
                queue.extend(message.receipt, visibility_seconds)
            except StateMovedOnError as error:
                logger.warning("message could not be kept in flight: %s", error)
                return
            except SleeperError as error:
                # Two thirds of the time are left, and another try comes before they end.
                logger.warning("message not kept in flight yet: %s", error)

    thread = threading.Thread(target=extend, name="keep-in-flight", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _stop_when_input_closes(stop: threading.Event) -> None:
    while sys.stdin.buffer.read(1):
        pass
    stop.set()


def _give_back_on(number: int, stop: threading.Event) -> None:
    def on_signal(*_: object) -> None:
        stop.set()
        raise GivenBackError

    handler: Callable[..., None] = on_signal
    signal.signal(number, handler)


def main() -> None:
    """Entry point of `python -m sleeper.wiring.worker FOLDER`."""
    parser = argparse.ArgumentParser(description="a worker process of a local instance")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    threading.Thread(target=_stop_when_input_closes, args=(stop,), daemon=True).start()
    # Ctrl-C at the terminal reaches the whole group: the starter decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _give_back_on(signal.SIGTERM, stop)
    instance = open_instance(arguments.folder)
    try:
        Worker(instance, new_task_id(), stop).run()
    finally:
        instance.close()


if __name__ == "__main__":
    main()
