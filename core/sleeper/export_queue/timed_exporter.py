"""An exporter in a thread of its own, whose calls have a time limit."""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from sleeper.errors import UnavailableError, UserCodeError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.export_queue.exporters import open_exporter
from sleeper.export_queue.failures import HungCallError, describe_failure, is_unavailable
from sleeper.instance import Instance

logger = logging.getLogger(__name__)

_CLOSE_SECONDS_MAX = 5.0


class TimedExporter:
    """Opens an exporter with the first batch, and makes all its calls in one thread.

    The thread cannot be stopped if a call never returns: `is_hung` is true from then on, and the
    process should end when its other work is done. After an error due to an unavailable receiver
    the exporter is closed, and opened again with the next batch.
    """

    def __init__(self, instance: Instance, queue: ExportQueue) -> None:
        self._instance = instance
        self._queue = queue
        self._exporter: Exporter | None = None
        self._actions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.is_hung = False

    def export(self, batch: ExportBatch) -> None:
        """Sends a batch. HungCallError if the exporter does not return in time.

        UnavailableError also if it cannot be opened: that is no fault of the exports.
        """
        seconds = self._queue.timeout_seconds
        if not self._call(lambda: self._export(batch), seconds):
            self.is_hung = True
            raise HungCallError(seconds)

    def close(self) -> None:
        """Closes the exporter and ends the thread. Waits for a limited time."""
        if self._thread is None or self.is_hung:
            return
        self._call(self._close, _CLOSE_SECONDS_MAX)
        self._actions.put(None)
        self._thread = None

    def _call(self, action: Callable[[], None], seconds: float) -> bool:
        """Runs the action in the thread. Returns False if it does not end in time."""
        if self._thread is None:
            name = f"exporter of {self._queue.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def run() -> None:
            try:
                action()
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

        self._actions.put(run)
        try:
            error = ended.get(timeout=seconds)
        except Empty:
            return False
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise UserCodeError(f"{type(error).__name__}: {error}") from error
        return True

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            action()

    def _export(self, batch: ExportBatch) -> None:
        if self._exporter is None:
            self._exporter = self._open()
        try:
            self._exporter.export(batch)
        except Exception as error:
            if is_unavailable(error):
                self._close()
            raise

    def _open(self) -> Exporter:
        try:
            return open_exporter(self._instance, self._queue)
        except Exception as error:
            if is_unavailable(error):
                raise
            raise UnavailableError(
                f"cannot open the exporter: {describe_failure(error)}"
            ) from error

    def _close(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is None:
            return
        try:
            exporter.close()
        except Exception as error:
            logger.warning("could not close the exporter of queue %s: %s", self._queue.name, error)
