"""The ports of message queues and their dead letters.

A received message is *in flight* until it is deleted, given back, or its visibility
timeout passes, when it can be received again. One that was received too often becomes a
*dead letter*. On a FIFO queue each message has a group: a group's messages come in order,
and none comes while another of the group is in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class ResultsQueue(Protocol):
    """A queue that takes rows. NotFoundError if it is not there."""

    @property
    def message_bytes_max(self) -> int:
        """How large a message may be."""

    def send_all(self, bodies: Sequence[str]) -> None:
        """Adds messages. Durable when it returns."""


class QueueName(Enum):
    """The queues of an instance; on AWS those of `sleeper.properties.deployed`."""

    INGEST = "ingest"
    COMPACTION = "compaction"
    SPLITTING = "splitting"
    INGEST_BATCHER = "ingest_batcher"
    COMMITS = "commits"
    COMPACTION_JOB_CREATION = "compaction_job_creation"
    FIND_PARTITIONS_TO_SPLIT = "find_partitions_to_split"
    GARBAGE_COLLECTION = "garbage_collection"
    ORPHAN_COLLECTION = "orphan_collection"
    STATE_SNAPSHOTS = "state_snapshots"
    TABLE_METRICS = "table_metrics"
    BULK_IMPORT_EMR = "bulk_import_emr"
    BULK_IMPORT_PERSISTENT_EMR = "bulk_import_persistent_emr"
    BULK_IMPORT_EMR_SERVERLESS = "bulk_import_emr_serverless"
    BULK_IMPORT_EKS = "bulk_import_eks"
    BULK_EXPORT = "bulk_export"
    QUERY = "query"
    LEAF_QUERY = "leaf_query"


WORK_QUEUES = (
    QueueName.INGEST,
    QueueName.COMPACTION,
    QueueName.SPLITTING,
    QueueName.QUERY,
    QueueName.LEAF_QUERY,
)
"""The queues of a local instance, which its workers take from."""
MESSAGE_BYTES_MAX = 1_048_576
"""What SQS takes; a folder's queue takes no more, so that an instance may become an AWS one."""
LOCAL_SENDER = "local"
"""Whoever sends a message to a folder's queue."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How a queue treats its messages."""

    visibility_timeout_seconds: int = 900
    receives_max: int = 3
    fifo: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message in flight. `receipt` stands for this receive; `receives` counts it.

    `sender` is who the queue says has sent it.
    """

    message_id: str
    body: str
    receipt: str
    receives: int
    sent_ms: int
    group: str | None = None
    sender: str = LOCAL_SENDER


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was received too often. When it died is not known everywhere."""

    message_id: str
    body: str
    receives: int
    sent_ms: int
    died_ms: int | None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages a queue holds: ready to be received, in flight, and not yet due."""

    visible: int
    in_flight: int
    delayed: int
    dead: int

    @property
    def unfinished(self) -> int:
        """Messages that still stand for work."""
        return self.visible + self.in_flight + self.delayed


class MessageQueue(Protocol):
    """A queue. Receivers may die at any time; then their messages return."""

    def send(
        self,
        body: str,
        delay_seconds: float = 0,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Adds a message and returns its id. Durable when it returns.

        A FIFO queue needs a group, and takes a deduplication id: one that was sent within
        the last five minutes adds nothing, and gives the id of the first. Others refuse
        both. InvalidRequestError for these, and for a message that is too large.
        """

    def send_all(self, bodies: Sequence[str], groups: Sequence[str] | None = None) -> None:
        """Adds a message for each, on a FIFO queue with a group for each. Durable on return.

        After an error it is not known which of them were added.
        """

    def receive(self, messages_max: int = 1, wait_seconds: float = 0) -> tuple[Message, ...]:
        """Up to so many messages, now in flight; waits so long for a first one."""

    def extend(self, receipt: str, seconds: float) -> None:
        """Keeps the message in flight for so long from now.

        StateMovedOnError if the receipt does not hold the message any more.
        """

    def delete(self, receipt: str) -> None:
        """Takes the message out for good. No error if the receipt is too old to do so."""

    def give_back(self, receipt: str, delay_seconds: float = 0) -> None:
        """Lets the message be received again. Nothing happens if the receipt is too old."""

    def counts(self) -> QueueCounts:
        """How many messages there are."""


class DeadLetters(Protocol):
    """The dead letters of one queue."""

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """The oldest dead letters."""

    def redrive(self) -> int:
        """Puts all of them back on the queue as never received, in order. Returns how many."""

    def delete(self, message_id: str) -> None:
        """Takes one out for good, or NotFoundError."""
