"""Keys and ids in the DynamoDB table of export queues (docs/formats.md).

- `#queues`, the name: the registration of a queue.
- `<name>#<generation>`, `bucket#<number>`: counts, failures and claim of a bucket.
- `<name>#<generation>`, `dead#<id>#<number>`: a dead letter of a bucket.
- `<name>#<generation>#<number>`, the stored id: an item of a bucket.

The stored id has the exports and the bytes of the item, so items are counted without reading them.
"""

from dataclasses import dataclass

from sleeper.aws.dynamo import Item
from sleeper.export_queue.store import RegisteredQueue

QUEUES = "#queues"
BUCKET, DEAD = "bucket#", "dead#"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one generation of a queue."""

    name: str
    generation: int

    @classmethod
    def find(cls, queue: RegisteredQueue) -> "QueueKeys":
        """Returns the keys of a registered queue."""
        return cls(queue.name, queue.generation)

    @property
    def partition(self) -> str:
        """The partition of its buckets' states and dead letters."""
        return f"{self.name}#{self.generation}"

    def bucket(self, bucket: int) -> Item:
        return {"queue": self.partition, "item": f"{BUCKET}{bucket:0{_DIGITS}d}"}

    def dead(self, bucket: int, dead_id: str) -> Item:
        return {"queue": self.partition, "item": f"{DEAD}{dead_id}#{bucket:0{_DIGITS}d}"}

    def items(self, bucket: int) -> str:
        """Returns the partition of a bucket's items."""
        return f"{self.partition}#{bucket:0{_DIGITS}d}"

    def item(self, bucket: int, stored_id: str) -> Item:
        return {"queue": self.items(bucket), "item": stored_id}


def registration_key(name: str) -> Item:
    """Returns the key of a queue's registration."""
    return {"queue": QUEUES, "item": name}


def bucket_number(state: Item) -> int:
    """Returns the number of the bucket of an item with its state."""
    return int(state["item"].removeprefix(BUCKET))


def stored_counts(stored: str) -> tuple[int, int]:
    """Returns the exports and the bytes of an item by its stored id."""
    _, exports, size, _ = stored.rsplit("!", 3)
    return int(exports), int(size)
