"""Messages that failed: shown again soon, and later each time.

By itself a queue would show one only after several times the time that a function may take. Until
then no other of its group comes off a FIFO queue, and whoever asked a query waits.
"""

import logging

from sleeper.errors import SleeperError
from sleeper.jobs.queue import Message, MessageQueue

logger = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS = 5
_DELAY_SECONDS_MAX = 300


def return_soon(queue: MessageQueue, message: Message) -> None:
    """Shows it after 5 s, and after twice as long each time that it failed; 5 minutes at most."""
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
