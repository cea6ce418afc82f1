"""An export queue of an open instance."""

from collections.abc import Sequence

from sleeper.export_queue import control
from sleeper.export_queue.control import PeekedExports, QueueStatus
from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.service import delete_queue
from sleeper.instance import Instance as Ports


class ExportQueue:
    """An export queue. `Instance.export_queue` and `Instance.create_export_queue` return it.

    Methods raise `NotFoundError` if the queue was deleted, and `UnavailableError` if its storage
    does not answer.
    """

    def __init__(self, instance: Ports, name: str) -> None:
        self._instance = instance
        self.name = name

    def status(self) -> QueueStatus:
        """Returns how far the queue is, and the buckets whose last call failed."""
        return control.queue_status(self._instance, self.name)

    def peek(
        self, limit: int = 20, bucket: int | None = None, dead: bool = False
    ) -> Sequence[PeekedExports]:
        """Returns the first pending exports, or the oldest dead ones, and changes nothing.

        Each result has a `bucket` and its `rows`, an Arrow batch with the columns `sequence`,
        `__gone`, the keys and the values. There are at most `limit` rows in all.
        """
        return control.peek(self._instance, self.name, bucket, limit, dead)

    def drain(self, seconds: float | None = None) -> DrainReport:
        """Captures and exports what the queue has now, in this process.

        Calls failed buckets at once. With `seconds`, calls are repeated for about that time while
        the receiver is unavailable. Exports remain if it is, another worker has them, or the queue
        is paused. The result has the numbers of `exports` and `dead` exports, and `problems`.
        """
        return drain_now(self._instance, self.name, seconds)

    def pause(self) -> None:
        """Pauses the queue: its exporter gets no more exports. They stay pending."""
        control.pause_queue(self._instance, self.name)

    def resume(self) -> int:
        """Resumes a paused queue. Returns the number of failed buckets, which are due at once."""
        return control.resume_queue(self._instance, self.name)

    def redrive(self) -> int:
        """Makes dead letters pending exports again. Returns the number of exports."""
        return control.redrive(self._instance, self.name)

    def delete(self, discard: bool = False) -> None:
        """Deletes the queue. The receiver keeps what it has.

        Raises `InvalidRequestError` if exports are pending, dead or not captured, unless
        `discard` loses them.
        """
        delete_queue(self._instance, self.name, discard)
