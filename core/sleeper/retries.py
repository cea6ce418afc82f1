"""Retries: how an action is repeated, and for how long requests to services are.

A job that gives up may be lost, so workers, functions with enough time and Spark tasks retry
requests for more than a minute. Callers wait for queries and commands, so these retry for seconds.
SLEEPER_RETRY_SECONDS sets the time for the process and its child processes.
"""

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

R = TypeVar("R")
ErrorTypes = type[Exception] | tuple[type[Exception], ...]

RETRY_VARIABLE = "SLEEPER_RETRY_SECONDS"
JOB_RETRY_SECONDS = 90
FUNCTION_RECEIVES_MIN = 5
"""The least receives before a message that starts a function is a dead letter, as AWS recommends.

A receive counts although Lambda throttled the function, which then did not run.
"""
_CALLER_RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between attempts, each up to twice as long as the one before.

    `jitter` is the random part of each wait. There are at most `retries` waits, and none after
    `seconds_total` in all.
    """

    retries: float = math.inf
    seconds_first: float = 0.0
    seconds_max: float = math.inf
    jitter: float = 1.0
    seconds_total: float = math.inf

    def waits_seconds(self) -> Iterator[float]:
        """Yields the waits."""
        count, total = 0, 0.0
        longest = min(self.seconds_first, self.seconds_max)
        while count < self.retries and total < self.seconds_total:
            wait = longest * random.uniform(1 - self.jitter, 1)
            yield wait
            count, total, longest = count + 1, total + wait, min(2 * longest, self.seconds_max)

    @classmethod
    def for_requests(cls, seconds_first: float, seconds_max: float) -> "Backoff":
        """Returns waits with full jitter that together take about `retry_seconds`."""
        waits = Backoff(math.inf, seconds_first / 2, seconds_max / 2, jitter=0).waits_seconds()
        return cls(count_retries(retry_seconds(), waits), seconds_first, seconds_max)


def retry(
    action: Callable[[], R],
    on: ErrorTypes,
    backoff: Backoff,
    unless: ErrorTypes = (),
    on_retry: Callable[[Exception, float], object] = lambda _error, _wait_seconds: None,
) -> R:
    """Returns the action's result, repeating it while it raises one of the errors in `on`.

    Raises the error of the last attempt, and any error in `unless` at once. `on_retry` gets each
    error that is followed by a retry, and the wait before the retry.
    """
    for wait_seconds in backoff.waits_seconds():
        try:
            return action()
        except unless:
            raise
        except on as error:
            on_retry(error, wait_seconds)
        sleep(wait_seconds)
    return action()


def retry_as_job() -> None:
    """Makes this process retry as a job does, unless its environment sets another time."""
    os.environ.setdefault(RETRY_VARIABLE, str(JOB_RETRY_SECONDS))


def retry_seconds() -> float:
    """Returns how long a request is retried."""
    return float(os.environ.get(RETRY_VARIABLE) or _CALLER_RETRY_SECONDS)


def count_retries(seconds: float, waits_seconds: Iterator[float]) -> int:
    """Returns the number of retries that take that long, given the mean waits before each."""
    retries, total = 0, 0.0
    while total < seconds:
        total += next(waits_seconds)
        retries += 1
    return retries
