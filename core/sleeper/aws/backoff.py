"""Retries of requests that DynamoDB or SQS carried out in part, which boto3 does not repeat."""

import random
import time
from collections.abc import Iterator
from itertools import count

from sleeper.retries import retries_for, retry_seconds

_FIRST_WAIT_SECONDS = 0.05
_WAIT_SECONDS_MAX = 10.0


def attempts() -> Iterator[None]:
    """Yields once for each attempt, and waits before all but the first: longer each time, jittered.

    Together the waits take about `retry_seconds`.
    """
    yield
    for number in range(retries_for(retry_seconds(), (_longest(n) / 2 for n in count()))):
        time.sleep(random.uniform(0, _longest(number)))
        yield


def _longest(number: int) -> float:
    return float(min(_FIRST_WAIT_SECONDS * 2**number, _WAIT_SECONDS_MAX))
