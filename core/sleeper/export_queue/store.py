"""The port of the storage of export queues: their registration, and pending exports in buckets.

An *item* is a number of exports of one bucket. The content of items is opaque here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.instance import Instance

_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """How far the exports of a queue have been captured.

    All of transactions up to `number`, and of the next one with exports those of buckets below
    `bucket`.
    """

    number: int
    bucket: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredQueue:
    """A queue of the instance.

    `generation` is the number of the transaction that created it, which tells it from an earlier
    queue of its name; it is 0 until that transaction has been committed.
    """

    name: str
    table_id: str
    generation: int
    position: Position
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to store. `id` orders the items of a bucket and has no `!`."""

    bucket: int
    id: str
    exports: int
    content: bytes

    @property
    def stored_id(self) -> str:
        """The id, the exports, the bytes and a digest of the content.

        A stored item never changes: one that is stored again is stored once, and items of one id
        with other contents are stored beside each other. So no item is deleted that was not read.
        """
        digest = hashlib.sha256(self.content).hexdigest()[:_DIGEST_CHARACTERS]
        # The separator sorts before the other characters.
        return f"{self.id}!{self.exports}!{len(self.content)}!{digest}"


@dataclass(frozen=True, slots=True)
class PendingItem:
    """A stored item. `id` is its stored id."""

    id: str
    exports: int
    content: bytes


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """The state of a bucket that has items.

    `failures` counts failed calls of the exporter since the last success, of which `refusals` were
    not due to an unavailable receiver. `error` is the last failure, which was a refusal if
    `was_refused`. The bucket waits until `due_ms`, and a worker has it until `claimed_until_ms`;
    both are 0 otherwise. `deaths` counts claims since the last success that no worker released:
    those workers died.
    """

    bucket: int
    items: int
    exports: int
    bytes: int
    oldest_ms: int
    failures: int = 0
    refusals: int = 0
    error: str = ""
    due_ms: int = 0
    claimed_until_ms: int = 0
    deaths: int = 0
    was_refused: bool = False


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """Exports that the exporter refused."""

    id: str
    exports: int
    content: bytes
    error: str


@dataclass(frozen=True, slots=True)
class DeadExports:
    """A dead letter of a queue: refused exports of one bucket."""

    bucket: int
    id: str
    exports: int
    content: bytes
    error: str
    died_ms: int


@dataclass(frozen=True, slots=True)
class ExportCounts:
    """The numbers of pending exports, their bytes, and dead exports of a queue."""

    pending: int
    bytes: int
    dead: int


class ExportStore(Protocol):
    """The storage of an instance's export queues. Every change is durable on return.

    Methods with a `name` raise NotFoundError if no queue has it, and those that also have a
    `generation` if the queue of that name is another one. An `owner` is the random id of one
    worker: StateMovedOnError if its claim on the bucket has ended.
    """

    def register(self, name: str, table_id: str) -> RegisteredQueue:
        """Registers a queue with generation 0. Returns the present one if the table has it.

        ConflictError if another table has a queue of that name.
        """

    def begin(self, name: str, generation: int, position: Position) -> None:
        """Sets generation and position of a queue with generation 0. Idempotent."""

    def find(self, name: str) -> RegisteredQueue:
        """Returns the queue of that name."""

    def list(self) -> Sequence[RegisteredQueue]:
        """Returns all queues, by name."""

    def remove(self, name: str, generation: int | None = None) -> None:
        """Deletes the queue with its items and dead letters. Does nothing if there is none.

        With a generation, it does nothing if the queue of that name has another one.
        """

    def pause(self, name: str, paused: bool) -> None:
        """Pauses or resumes a queue. The exporters of a paused queue get no more exports."""

    def add(self, name: str, generation: int, items: Sequence[NewItem], to: Position) -> None:
        """Stores items, and then advances the position, which never moves back.

        After an error, some items may be stored. To add the same ones again changes nothing.
        """

    def counts(self, name: str) -> ExportCounts:
        """Returns the numbers of exports."""

    def buckets(self, name: str) -> Sequence[BucketStatus]:
        """Returns the buckets that have items, by number."""

    def claim(self, name: str, bucket: int, owner: str, seconds: float) -> bool:
        """Claims a bucket for the time, or extends the owner's claim. False if another has it.

        A claim ends early if the store knows that its worker is dead.
        """

    def release(self, name: str, bucket: int, owner: str) -> None:
        """Ends the claim. Does nothing if it has ended."""

    def read(self, name: str, bucket: int, bytes_max: int) -> Sequence[PendingItem]:
        """Returns the first items of a bucket, at least one if there is any, up to the size."""

    def settle(
        self,
        name: str,
        bucket: int,
        owner: str,
        removed: Sequence[str],
        dead: Sequence[NewDeadLetter] = (),
    ) -> None:
        """Deletes items and adds dead letters, and resets the bucket's failures and deaths."""

    def record_failure(
        self, name: str, bucket: int, owner: str, error: str, is_refusal: bool, due_ms: int
    ) -> None:
        """Counts a failed call, which is tried again at the time, and ends the claim."""

    def retry_now(self, name: str) -> int:
        """Makes buckets that wait after a failure due. Returns their number."""

    def dead_letters(self, name: str, limit: int = 100) -> Sequence[DeadExports]:
        """Returns the oldest dead letters."""

    def redrive(self, name: str) -> int:
        """Makes dead letters items again, before newer ones of their buckets.

        Returns the number of exports.
        """

    def sweep(self, name: str) -> int:
        """Deletes contents that processes which died left. Returns their number."""


def open_export_store(instance: Instance) -> ExportStore:
    """Returns the storage of the instance's export queues, which the instance closes.

    InvalidRequestError if it is deployed without them.
    """
    store: ExportStore = instance.systems.get("export_queue")
    return store
