"""The state of an export queue, as every listing and the Python API show it."""

from collections.abc import Iterable
from enum import Enum

from sleeper.jobs.export_store import BucketStatus, RegisteredQueue


class QueueState(Enum):
    """The state of a queue.

    - CREATING: its creation has not ended, or was interrupted.
    - ACTIVE: it takes up and exports.
    - PAUSED: it takes up, and its exporter gets nothing.
    - FAILING: the last call of the exporter failed for at least one bucket, or its worker died.
    - DELETING: its table does not have it any more, but its exports are still stored.
    - UNREADABLE: its table cannot be read.
    """

    CREATING = "creating"
    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    DELETING = "deleting"
    UNREADABLE = "unreadable"


def find_state(
    queue: RegisteredQueue, generation: int | None, buckets: Iterable[BucketStatus]
) -> QueueState:
    """Returns the state of a queue whose table is readable.

    `generation` is that of the queue of this name in the table, None if the table has none.
    """
    if not queue.generation:
        return QueueState.CREATING
    if generation != queue.generation:
        return QueueState.DELETING
    if queue.is_paused:
        return QueueState.PAUSED
    return QueueState.FAILING if any(map(is_failing, buckets)) else QueueState.ACTIVE


def is_failing(bucket: BucketStatus) -> bool:
    """Returns whether the last call of the exporter failed, or the worker died during it."""
    return bucket.failures > 0 or bucket.deaths > 0
