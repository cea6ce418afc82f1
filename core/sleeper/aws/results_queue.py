"""A client's queue in SQS, which takes rows of its queries."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from sleeper.aws.errors import MissingResourceError, translated
from sleeper.aws.message_batch import Outgoing, send_batches
from sleeper.aws.queue import is_fifo
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX


class SqsResultsQueue:
    """Implements `sleeper.query_service.results_queue.ResultsQueue`.

    The sender of a query names the queue, so a missing one is NotFoundError.
    """

    def __init__(self, client: Any, url: str) -> None:
        if is_fifo(url):
            raise InvalidRequestError(f"queue {url}: results cannot go to a FIFO queue")
        self._client = client
        self._url = url

    @cached_property
    def message_bytes_max(self) -> int:
        """See the port. What the queue itself says."""
        with self._named_by_sender(), translated(f"queue {self._url}"):
            found = self._client.get_queue_attributes(
                QueueUrl=self._url, AttributeNames=["MaximumMessageSize"]
            )
        return min(int(found["Attributes"]["MaximumMessageSize"]), MESSAGE_BYTES_MAX)

    def send_all(self, bodies: Sequence[str]) -> None:
        """See the port."""
        with self._named_by_sender():
            send_batches(self._client, self._url, self._url, [Outgoing(body) for body in bodies])

    @contextmanager
    def _named_by_sender(self) -> Iterator[None]:
        try:
            yield
        except MissingResourceError as error:
            raise NotFoundError(str(error)) from error
