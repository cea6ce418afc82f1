"""Errors of tasks, as they come back to the driver.

Spark hands on what a task raised as text, among its own. So a task puts its error of
`sleeper.errors` into a line that the driver finds again.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from sleeper import errors
from sleeper.errors import SleeperError, UnavailableError

_MARK = "sleeper task failed: "
# Before what it was.
_GATEWAY_SAYS = "An error occurred while calling "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskError(Exception):
    """A task's error, marked."""


@contextmanager
def marked_errors() -> Iterator[None]:
    """Around what a task does: its errors can be read again."""
    try:
        yield
    except SleeperError as error:
        said = json.dumps({"kind": type(error).__name__, "message": str(error)})
        raise TaskError(_MARK + said) from error


@contextmanager
def task_errors() -> Iterator[None]:
    """Around what the driver asks of Spark: raises the task's error, or UnavailableError."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise _error_in(str(error)) from error


def is_of_spark(error: Exception) -> bool:
    """Whether it is Spark's own, or of the gateway to its Java, which may be gone."""
    # The gateway's errors have no class that is always there.
    gateway = type(error).__module__.startswith("py4j")
    return gateway or isinstance(error, PySparkException | OSError)


def _error_in(text: str) -> SleeperError:
    found = _MARKED.search(text)
    if found is None:
        lines = [line.lstrip(": ").rstrip() for line in text.splitlines()]
        told = [line for line in lines if line and not line.startswith(_GATEWAY_SAYS)]
        return UnavailableError(f"Spark gave up: {told[0] if told else 'it does not say why'}")
    raw = json.loads(found[1])
    kind = getattr(errors, raw["kind"])
    error: SleeperError = kind(raw["message"])
    return error
