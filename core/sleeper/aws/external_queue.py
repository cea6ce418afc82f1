"""Queues of SQS that belong to users, to which exports are sent."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from sleeper.aws.clients import make_client
from sleeper.aws.errors import ThrottledError, translate_errors
from sleeper.aws.queue import Outgoing, is_fifo
from sleeper.jobs.queue import MESSAGE_BYTES_MAX, OutgoingMessage
from sleeper.retries import Backoff, retry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_BATCH_MESSAGES = 10
# Below the limit of SQS, because other servers keep its former limit.
_BATCH_BYTES = 262_144
_REGION = re.compile(
    r"https://(?:sqs\.)?([a-z]{2,4}(?:-[a-z]+)+-[0-9])\.(?:queue\.)?amazonaws\.com"
)
# An export is tried again later, so the time of one call is short.
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10
)
_BACKOFF = Backoff(retries=4, seconds_first=0.1, seconds_max=1.0)


def open_external_queue(name: str) -> "SqsExternalQueue":
    """Opens the queue of a URL, or of a name in the account and region of the credentials."""
    match = _REGION.match(name)
    client = _client(match[1] if match else None)
    if name.startswith(("http:", "https:")):
        return SqsExternalQueue(client, name)
    with translate_errors(f"queue {name!r}"):
        return SqsExternalQueue(client, client.get_queue_url(QueueName=name)["QueueUrl"])


@functools.cache
def _client(region: str | None) -> Any:
    return make_client("sqs", config=_CONFIG, **({"region_name": region} if region else {}))


@dataclass(frozen=True, slots=True)
class SqsExternalQueue:
    """Implements `sleeper.jobs.queue.ExternalQueue`. Safe for threads."""

    client: "SQSClient"
    url: str

    @property
    def is_fifo(self) -> bool:
        return is_fifo(self.url)

    def send(self, messages: Sequence[OutgoingMessage]) -> Mapping[int, str]:
        """See the port. Each request sends up to ten messages."""
        refused: dict[int, str] = {}
        sizes = [len(message.body.encode()) for message in messages]
        for positions in _requests(messages, sizes, refused):
            refused |= self._send(messages, positions)
        return refused

    def _send(
        self, messages: Sequence[OutgoingMessage], positions: Sequence[int]
    ) -> Mapping[int, str]:
        waiting: dict[str, Any] = {
            str(index): {"Id": str(index), **_members(messages[index])} for index in positions
        }
        refused: dict[int, str] = {}

        def attempt() -> None:
            with translate_errors(f"queue {self.url}"):
                answer = self.client.send_message_batch(
                    QueueUrl=self.url, Entries=list(waiting.values())
                )
            for done in answer.get("Successful", ()):
                del waiting[done["Id"]]
            problem = ""
            for failed in answer.get("Failed", ()):
                problem = f"{failed.get('Code')}: {failed.get('Message', '')}"
                if failed["SenderFault"]:
                    refused[int(failed["Id"])] = problem
                    del waiting[failed["Id"]]
            if waiting:
                raise ThrottledError(
                    f"queue {self.url}: {len(waiting)} messages were not sent: {problem}"
                )

        retry(attempt, on=ThrottledError, backoff=_BACKOFF)
        return refused


def _members(message: OutgoingMessage) -> dict[str, Any]:
    return Outgoing(message.body, message.group, message.deduplication_id).members()


def _requests(
    messages: Sequence[OutgoingMessage], sizes: Sequence[int], refused: dict[int, str]
) -> Iterator[list[int]]:
    """Yields the positions of each request's messages, and adds those that are too large to
    `refused`.

    SQS may take a message of a request and not the one before it, so no request has two messages
    of a group.
    """
    positions: list[int] = []
    groups: set[str] = set()
    size = 0
    for position, message in enumerate(messages):
        if sizes[position] > MESSAGE_BYTES_MAX:
            refused[position] = (
                f"the message has {sizes[position]:,} bytes (expected at most "
                f"{MESSAGE_BYTES_MAX:,})"
            )
            continue
        is_full = len(positions) == _BATCH_MESSAGES or size + sizes[position] > _BATCH_BYTES
        if positions and (is_full or message.group in groups):
            yield positions
            positions, groups, size = [], set(), 0
        positions.append(position)
        size += sizes[position]
        if message.group is not None:
            groups.add(message.group)
    if positions:
        yield positions
