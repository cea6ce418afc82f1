"""How long requests to services are retried.

A job that gives up may be lost, so workers, functions with the time for it and Spark tasks retry
for more than a minute. Queries and commands have somebody waiting, so they retry for seconds.
SLEEPER_RETRY_SECONDS says which, for the process and the processes that it starts.
"""

import os
from collections.abc import Iterator

RETRY_VARIABLE = "SLEEPER_RETRY_SECONDS"
JOB_RETRY_SECONDS = 90
_CALLER_RETRY_SECONDS = 10.0


def retry_as_job() -> None:
    """Makes this process retry as a job does, unless its environment says otherwise."""
    os.environ.setdefault(RETRY_VARIABLE, str(JOB_RETRY_SECONDS))


def retry_seconds() -> float:
    """Returns how long a request is retried."""
    return float(os.environ.get(RETRY_VARIABLE) or _CALLER_RETRY_SECONDS)


def retries_for(seconds: float, waits_seconds: Iterator[float]) -> int:
    """Returns how many retries take so long, given the mean waits before each of them."""
    retries, total = 0, 0.0
    while total < seconds:
        total += next(waits_seconds)
        retries += 1
    return retries
