"""A queue of results in a folder, by the name that a client gives as its URL."""

from collections.abc import Sequence

from sleeper.clock import Clock, system_clock
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, QueueSettings
from sleeper.local.database import InstanceDatabase
from sleeper.local.queue import LocalQueue


class LocalResultsQueue:
    """Implements `sleeper.query_service.results_queue.ResultsQueue`. Made by being used.

    It is none of the instance's own queues, whatever its name.
    """

    def __init__(self, database: InstanceDatabase, url: str, clock: Clock = system_clock) -> None:
        self.queue = LocalQueue(database, f"results:{url}", QueueSettings(), clock)

    @property
    def message_bytes_max(self) -> int:
        """See the port."""
        return MESSAGE_BYTES_MAX

    def send_all(self, bodies: Sequence[str]) -> None:
        """See the port."""
        self.queue.send_all(bodies)
