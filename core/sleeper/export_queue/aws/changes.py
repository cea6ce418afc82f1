"""Changes of a bucket's items, in one DynamoDB transaction with the bucket's counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sleeper.aws.dynamo import DynamoItems, Item, Write
from sleeper.aws.errors import RefusedError

# With inline contents of 32 KiB below the 4 MB of a transaction, with the bucket below its 100.
_WRITES_MAX = 90


@dataclass(frozen=True, slots=True)
class Change:
    """A conditional write, and what it adds to the counts of its bucket.

    The write is refused if it has been made before.
    """

    write: Write
    items: int = 0
    exports: int = 0
    bytes: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class BucketChange:
    """A change of a bucket's state: an update expression without `ADD`, and its condition."""

    key: Item
    change: str
    condition: str | None
    values: Item


def apply_changes(
    items: DynamoItems, bucket: BucketChange, changes: Sequence[Change]
) -> Sequence[int]:
    """Applies the changes, 90 at a time, each time with the change of the bucket.

    Returns the positions of changes that had been made before. The bucket changes also if there are
    no changes. RefusedError if the condition of the bucket does not hold.
    """
    done: list[int] = []
    for start in range(0, max(len(changes), 1), _WRITES_MAX):
        positions = list(range(start, min(start + _WRITES_MAX, len(changes))))
        while True:
            some = [changes[i] for i in positions]
            writes = [bucket_write(items, bucket, some), *(each.write for each in some)]
            try:
                items.retry_conflicts(partial(items.transact, writes))
                break
            except RefusedError as error:
                if 0 in error.items:
                    raise
                refused = {positions[i - 1] for i in error.items}
                done += sorted(refused)
                positions = [i for i in positions if i not in refused]
    return done


def bucket_write(items: DynamoItems, bucket: BucketChange, changes: Sequence[Change]) -> Write:
    """Returns the write that changes the bucket, with the sums of the changes' counts."""
    values = {
        "items": sum(each.items for each in changes),
        "exports": sum(each.exports for each in changes),
        "bytes": sum(each.bytes for each in changes),
        "dead": sum(each.dead for each in changes),
    }
    counts = ", ".join(f"#{name} :{name}" for name in values)
    return items.update_write(
        bucket.key, f"{bucket.change} ADD {counts}", bucket.condition, {**bucket.values, **values}
    )
