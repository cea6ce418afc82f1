"""The retry policy: what follows a failed message, by queue and error.

A message is deleted after errors that every retry would repeat. Otherwise it returns to its queue
after a delay that is shorter than the visibility timeout, so that other workers can retry it, and
so that the next message of its group becomes visible on a FIFO queue.

A full disk or a lost connection lasts for minutes and does not depend on the message. A local queue
does not count such failures within the first hour, so they leave no dead letter. SQS counts all
receives, so the delays between the receives of a job are long.
"""

import logging
from dataclasses import dataclass, replace

from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.jobs.queue import Failure, Message, MessageQueue, QueueName
from sleeper.properties.declaration import Property
from sleeper.systems import load, queues

logger = logging.getLogger(__name__)

VISIBILITY_SECONDS: dict[QueueName, Property[int]] = {
    QueueName(each.name): load(each.visibility) for each in queues().values()
}
"""The property with the visibility timeout of each queue's messages."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The errors that delete a message, and the delays of retries by number of receives.

    The last delay repeats. `permanent_delays_seconds`, if given, replace the delays after errors
    that no wait cures. Within `uncounted_seconds` after a message's first failure, errors that a
    wait may cure do not count, and `uncounted_delays_seconds` are the delays by number of failures.
    """

    dropped: tuple[type[SleeperError], ...]
    delays_seconds: tuple[float, ...]
    permanent_delays_seconds: tuple[float, ...] | None = None
    uncounted_seconds: float = 0.0
    uncounted_delays_seconds: tuple[float, ...] = (0.0,)

    def delay_seconds(self, message: Message, error: Exception | None = None) -> float:
        """Returns the delay before the message's next receive."""
        delays = self.delays_seconds
        if self.permanent_delays_seconds is not None and error and not _is_transient(error):
            delays = self.permanent_delays_seconds
        return delays[min(message.receives, len(delays)) - 1]

    def judge(self, message: Message, error: Exception, now_ms: int) -> tuple[Failure, float]:
        """Returns the failure of a receive, and the delay before the next one in seconds.

        For a queue that records failures.
        """
        reason = str(error) if isinstance(error, SleeperError) else repr(error)
        age_ms = now_ms - (now_ms if message.first_failed_ms is None else message.first_failed_ms)
        if _is_transient(error) and age_ms < 1000 * self.uncounted_seconds:
            delays = self.uncounted_delays_seconds
            delay_seconds = delays[min(message.failures, len(delays) - 1)]
            return Failure(reason, is_counted=False), delay_seconds
        return Failure(reason), self.delay_seconds(message, error)


# A job has few receives, and the cause of a failure may last for minutes.
_JOB_SECONDS = (60.0, 600.0, 600.0)
_PERMANENT_SECONDS = (10.0, 120.0, 600.0)
_UNCOUNTED_SECONDS = 3600.0
_UNCOUNTED_DELAYS_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
# A caller waits for a query, and a FIFO queue for the next message of the group.
_SOON_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
_LOCAL_SOON_SECONDS = (2.0, 10.0, 30.0)
_INVALID_OR_NO_TABLE = (InvalidRequestError, NotFoundError)

SOON = RetryPolicy((), _SOON_SECONDS)
JOB = RetryPolicy(_INVALID_OR_NO_TABLE, _JOB_SECONDS, _PERMANENT_SECONDS)
SUBMISSION = RetryPolicy((InvalidRequestError,), _JOB_SECONDS, _PERMANENT_SECONDS)
# Periodic job creation repeats what is still needed.
REPEATED_JOB = RetryPolicy(
    (InvalidRequestError, NotFoundError, StateMovedOnError, DataError),
    _JOB_SECONDS,
    _PERMANENT_SECONDS,
)
# The platform retries by itself.
PERSISTENT_CLUSTER = RetryPolicy(_INVALID_OR_NO_TABLE, (2.0,))

RETRY_POLICIES: dict[QueueName, RetryPolicy] = {
    QueueName(each.name): load(each.retry_policy) for each in queues().values()
}
"""Policies of tasks and functions. Queries record their final errors in the query tracker."""

LOCAL_RETRY_POLICIES: dict[QueueName, RetryPolicy] = {
    **{
        name: replace(
            policy,
            permanent_delays_seconds=_LOCAL_SOON_SECONDS,
            uncounted_seconds=_UNCOUNTED_SECONDS,
            uncounted_delays_seconds=_UNCOUNTED_DELAYS_SECONDS,
        )
        for name, policy in RETRY_POLICIES.items()
    },
    QueueName.QUERY: RetryPolicy((), _LOCAL_SOON_SECONDS),
    QueueName.LEAF_QUERY: RetryPolicy((), _LOCAL_SOON_SECONDS),
}
"""Policies of workers of a local instance."""


def return_message(
    queue: MessageQueue, message: Message, delay_seconds: float, failure: Failure | None = None
) -> None:
    """Makes the message visible after the delay.

    Logs an error of the queue: the message returns after its visibility timeout.
    """
    try:
        if failure is None:
            queue.release(message.receipt, delay_seconds)
        else:
            queue.release(message.receipt, delay_seconds, failure)
    except SleeperError:
        extra = {"message_id": message.message_id}
        logger.warning("could not return message", exc_info=True, extra=extra)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, UnavailableError | ConflictError) or is_transient(error)
