"""Errors of tasks on the driver.

Spark returns a task's error as text, within its own message. So a task writes its error of
`sleeper.errors` as a marked line, which the driver parses.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from sleeper import errors
from sleeper.errors import SleeperError, UnavailableError

_MARK = "sleeper task failed: "
# A line of the gateway before the error.
_GATEWAY_PREFIX = "An error occurred while calling "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskError(Exception):
    """The marked error of a task."""


@contextmanager
def mark_errors() -> Iterator[None]:
    """Marks errors of a task, so that `raise_task_errors` can parse them."""
    try:
        yield
    except SleeperError as error:
        marked = json.dumps({"kind": type(error).__name__, "message": str(error)})
        raise TaskError(_MARK + marked) from error


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raises, for an error of Spark, the task's error or UnavailableError."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise _error_in(str(error)) from error


def is_spark_error(error: Exception) -> bool:
    """Returns whether the error is of Spark, or of the gateway to its Java process."""
    # The gateway's error classes cannot always be imported.
    gateway = type(error).__module__.startswith("py4j")
    return gateway or isinstance(error, PySparkException | OSError)


def _error_in(text: str) -> SleeperError:
    match = _MARKED.search(text)
    if match is None:
        lines = [line.lstrip(": ").rstrip() for line in text.splitlines()]
        causes = [line for line in lines if line and not line.startswith(_GATEWAY_PREFIX)]
        return UnavailableError(f"Spark failed: {causes[0] if causes else 'no reason reported'}")
    raw = json.loads(match[1])
    kind = getattr(errors, raw["kind"])
    error: SleeperError = kind(raw["message"])
    return error
