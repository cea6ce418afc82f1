"""The queues of SQS that the suites run over: moto's in process, and ministack's.

Both have their clock moved, so that half a minute passes at once.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import boto3
import moto.sqs.models
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID

from sleeper.aws.dead_letters import SqsDeadLetters
from sleeper.aws.queue import SqsQueue
from sleeper.jobs.queue import QueueSettings
from tests.servers.ministack import REGION, Ministack
from tests.servers.sqs import QueuePair, make_queue


@dataclass
class MovedClock:
    """The clock of a server, which is ahead of this machine's."""

    seconds_ahead: Callable[[], float]
    pass_seconds: Callable[[float], None]
    # A server reads the time a moment after the test.
    tolerance_ms: int = 2000

    def __call__(self) -> int:
        return int((time.time() + self.seconds_ahead()) * 1000)


@dataclass
class SqsServer:
    """A server, with direct access to its messages."""

    client: Any
    clock: MovedClock
    bodies: Callable[[str], list[str]]

    def make(self, name: str, settings: QueueSettings) -> QueuePair:
        """Creates a queue for one test, with its dead-letter queue."""
        return make_queue(self.client, f"{name}-{uuid.uuid4().hex[:8]}", settings)


def sqs_queue(client: Any, name: str, pair: QueuePair) -> SqsQueue:
    """Returns the adapter of a queue."""
    return SqsQueue(client, name, pair.url, pair.dead_letters_url)


def sqs_dead_letters(client: Any, name: str, pair: QueuePair) -> SqsDeadLetters:
    """Returns the adapter of its dead letters."""
    return SqsDeadLetters(client, name, pair.url, pair.dead_letters_url, wait_seconds=0)


@contextmanager
def moto_server() -> Iterator[SqsServer]:
    """Starts moto with an adjustable clock."""
    ahead = [0.0]

    def move(seconds: float) -> None:
        ahead[0] += seconds

    def unix_time() -> float:
        return time.time() + ahead[0]

    def bodies(url: str) -> list[str]:
        backend = moto.sqs.models.sqs_backends[DEFAULT_ACCOUNT_ID][REGION]
        return [m.body for m in backend.get_queue(url.rpartition("/")[2])._messages]

    with (
        mock_aws(),
        patch.object(moto.sqs.models, "unix_time", unix_time),
        patch.object(moto.sqs.models, "unix_time_millis", lambda: unix_time() * 1000),
    ):
        client = boto3.client("sqs", region_name=REGION)
        yield SqsServer(client, MovedClock(lambda: ahead[0], move), bodies)


def ministack_queues(server: Ministack) -> SqsServer:
    """Starts ministack with an adjustable clock."""
    clock = MovedClock(lambda: server.seconds_ahead, server.pass_seconds)
    return SqsServer(
        server.client("sqs"), clock, lambda url: [body for _, body in server.messages(url)]
    )
