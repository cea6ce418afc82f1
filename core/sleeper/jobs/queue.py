"""The ports of message queues and their dead letters.

A received message is *in flight* until it is deleted, returned, or its visibility timeout passes,
when it becomes visible again. A message that was received too often becomes a *dead letter*. On a
FIFO queue each message has a group, whose messages are delivered in order, one at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sleeper.systems import missing_members, queues


class ResultsQueue(Protocol):
    """A queue of result rows. NotFoundError if it does not exist."""

    @property
    def message_bytes_max(self) -> int:
        """The maximum size of a message."""

    def send_all(self, bodies: Sequence[str]) -> None:
        """Adds messages. Durable when it returns."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send. On a FIFO queue it has a group and a deduplication id."""

    body: str
    group: str | None = None
    deduplication_id: str | None = None


class ExternalQueue(Protocol):
    """A queue of another system."""

    @property
    def is_fifo(self) -> bool:
        """Whether messages need a group and a deduplication id."""

    def send(self, messages: Sequence[OutgoingMessage]) -> Mapping[int, str]:
        """Sends messages, those of a group in order. Durable when it returns.

        Returns the reasons, by position, of those that the queue refused. After an error, some may
        have been sent.
        """


class QueueName(Enum):
    """The queues of an instance: those that `sleeper.systems.queues` has."""

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
    DELETION = "deletion"
    vars().update(missing_members(vars(), queues()))


LOCAL_QUEUES = {QueueName(each.name): each.local for each in queues().values() if each.local}
"""The queues of a local instance, which its workers poll."""
MESSAGE_BYTES_MAX = 1_048_576
"""The limit of SQS, and of local queues, so that messages fit both."""
LOCAL_SENDER = "local"
"""The sender of every message of a local queue."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue."""

    visibility_timeout_seconds: int = 900
    receives_max: int = 3
    fifo: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message in flight. `receipt` identifies this receive, `receives` includes it.

    `sender` is the sender's identity by the queue. `failures` counts earlier receives that failed,
    the first at `first_failed_ms`; 0 if the queue does not record them.
    """

    message_id: str
    body: str
    receipt: str
    receives: int
    sent_ms: int
    group: str | None = None
    sender: str = LOCAL_SENDER
    failures: int = 0
    first_failed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a receive. Unless `is_counted`, it does not bring the message nearer its end.

    SQS records no reasons and counts every receive.
    """

    reason: str
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was received too often.

    `died_ms` and `reason`, that of its last failure, are None if the queue does not record them.
    """

    message_id: str
    body: str
    receives: int
    sent_ms: int
    died_ms: int | None
    group: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The numbers of a queue's messages: visible, in flight, delayed and dead letters."""

    visible: int
    in_flight: int
    delayed: int
    dead: int

    @property
    def unfinished(self) -> int:
        """The number of messages that are not dead letters."""
        return self.visible + self.in_flight + self.delayed


class MessageQueue(Protocol):
    """A queue. Messages of receivers that die become visible again."""

    def send(
        self,
        body: str,
        delay_seconds: float = 0,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Adds a message and returns its id. Durable when it returns.

        A FIFO queue requires a group, and accepts a deduplication id: a repetition within five
        minutes adds nothing and returns the id of the first message. Other queues refuse both.
        InvalidRequestError then, and if the message is too large.
        """

    def send_all(
        self,
        bodies: Sequence[str],
        groups: Sequence[str] | None = None,
        deduplication_ids: Sequence[str] | None = None,
    ) -> None:
        """Adds a message per body, on a FIFO queue with its group. Durable when it returns.

        Deduplication ids are those of `send`. After an error, some may have been added.
        """

    def receive(self, messages_max: int = 1, wait_seconds: float = 0) -> tuple[Message, ...]:
        """Receives up to `messages_max` messages; waits up to `wait_seconds` for the first."""

    def extend(self, receipt: str, seconds: float) -> None:
        """Sets the message's visibility timeout to `seconds` from now.

        StateMovedOnError if the receipt has expired.
        """

    def delete(self, receipt: str) -> None:
        """Deletes the message. Does nothing if the receipt has expired."""

    def release(
        self, receipt: str, delay_seconds: float = 0, failure: Failure | None = None
    ) -> None:
        """Makes the message visible after the delay. Does nothing if the receipt has expired."""

    def counts(self) -> QueueCounts:
        """Returns the numbers of messages."""


class DeadLetters(Protocol):
    """The dead letters of one queue."""

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Returns the oldest dead letters."""

    def redrive(self) -> int:
        """Moves all to the queue as new messages, in order. Returns the number of messages."""

    def delete(self, message_id: str) -> None:
        """Deletes a dead letter. NotFoundError if it does not exist."""
