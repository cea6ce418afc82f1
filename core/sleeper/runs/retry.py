"""Messages that failed: shown again long before the queue would do so by itself.

That would be after the time that whoever works on it may take, and more. Until then nobody else
can try, and on a FIFO queue no other message of its group comes off the queue.
"""

import logging
from collections.abc import Sequence

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
)
from sleeper.jobs.queue import Message, MessageQueue, QueueName

_FOUND_ANEW = (InvalidRequestError, NotFoundError, StateMovedOnError, DataError)
SETTLED_ERRORS: dict[QueueName, tuple[type[SleeperError], ...]] = {
    QueueName.INGEST: (InvalidRequestError, NotFoundError),
    QueueName.BULK_EXPORT: (InvalidRequestError, NotFoundError),
    QueueName.BULK_IMPORT_PERSISTENT_EMR: (InvalidRequestError, NotFoundError),
    QueueName.INGEST_BATCHER: (InvalidRequestError,),
    QueueName.COMPACTION: _FOUND_ANEW,
    QueueName.SPLITTING: _FOUND_ANEW,
    # What a query's run raises is worth another try: all else is in its tracker.
    QueueName.QUERY: (),
    QueueName.LEAF_QUERY: (),
}


logger = logging.getLogger(__name__)
RETRY_SECONDS = (10.0, 120.0, 600.0)
"""Of a job, after each try: it has few, and what fails may take minutes to pass."""
_FIRST_DELAY_SECONDS = 5
_DELAY_SECONDS_MAX = 300


def return_job(queue: MessageQueue, message: Message) -> None:
    """Shows the message of a job after the time that RETRY_SECONDS says."""
    return_after(queue, message, retry_seconds(message, RETRY_SECONDS))


def retry_seconds(message: Message, delays: Sequence[float]) -> float:
    """The delay of this try; the last one also of all that come after."""
    return delays[min(message.receives, len(delays)) - 1]


def return_soon(queue: MessageQueue, message: Message) -> None:
    """Shows one that somebody waits for after 5 s, then twice as long, 5 minutes at most.

    So does who asked a query, and on a FIFO queue what comes after it in its group.
    """
    exponent = min(message.receives - 1, 10)
    delay_seconds = min(_FIRST_DELAY_SECONDS * 2**exponent, _DELAY_SECONDS_MAX)
    return_after(queue, message, delay_seconds)


def return_after(queue: MessageQueue, message: Message, delay_seconds: float) -> None:
    """Shows it after so long. If that fails, it returns when its visibility timeout is over."""
    try:
        queue.give_back(message.receipt, delay_seconds)
    except SleeperError:
        told = {"message_id": message.message_id}
        logger.warning("a message returns late", exc_info=True, extra=told)
