"""Operations on every table: a message per table on the operation's FIFO queue."""

import logging

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName

logger = logging.getLogger(__name__)

_ONLINE_TABLES = (QueueName.COMPACTION_JOB_CREATION, QueueName.FIND_PARTITIONS_TO_SPLIT)
_ALL_TABLES = (
    QueueName.GARBAGE_COLLECTION,
    QueueName.ORPHAN_COLLECTION,
    QueueName.STATE_SNAPSHOTS,
    QueueName.TABLE_METRICS,
)
TABLE_OPERATIONS = _ONLINE_TABLES + _ALL_TABLES
_ROUNDS_WAITING_MAX = 10


def fan_out_tables(instance: Instance, operation: QueueName) -> int:
    """Sends the id of each table of the operation. Returns the number of messages.

    Sends nothing while messages of ten rounds are waiting, because the handlers do not keep up.
    """
    if operation not in TABLE_OPERATIONS:
        raise InvalidRequestError(f"queue {operation.value} is not an operation on tables")
    ids = [
        ref.id
        for ref in instance.tables.index.list()
        if ref.online or operation not in _ONLINE_TABLES
    ]
    queue = instance.jobs.queue(operation)
    waiting = queue.counts().visible
    if waiting >= _ROUNDS_WAITING_MAX * max(len(ids), 1):
        logger.warning("%d messages already wait in queue %s", waiting, operation.value)
        return 0
    queue.send_all(ids, groups=ids)
    return len(ids)
