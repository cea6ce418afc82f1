"""Classification of DataFusion's and Arrow's exceptions as errors of `sleeper.errors`.

DataFusion's Python interface raises bare `Exception` and `ValueError` for every failure
(apache/datafusion-python#796, #1226), so the text decides. A panic in Rust is a `BaseException`
(apache/datafusion#7360 collects the panics that should be errors).
"""

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from sleeper.errors import (
    DataError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    classify_error,
    is_transient,
)
from sleeper.storage.disk import describe_full_disk

# Texts of the engine's S3 client after its last retry, or if S3 denies access.
_S3_FAILURES = (
    "Generic S3 error",
    "HTTP error",
    "error sending request",
    "lacked the necessary privileges",
    "lacked valid authentication",
)
_SPILL_FILE = re.compile(r"[/\\]datafusion-\w{6}([/\\]\.tmp|\W|$)")
_PYTHON_ERROR = re.compile(
    r"value: (?P<kind>StateMovedOnError|UnavailableError)"
    r"""\((?P<reason>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)"""
)


class EngineMemoryError(UnavailableError):
    """The engine's memory pool is exhausted."""


@contextlib.contextmanager
def engine_errors(memory_property: str | None = None, place: Path | None = None) -> Iterator[None]:
    """Translates exceptions of DataFusion and Arrow.

    StateMovedOnError if a file is gone, UnavailableError if memory, disk or S3 fails, DataError
    if a file is unreadable. Errors about memory name `memory_property`, those about the space of a
    disk `place`, the file that is written.
    """
    try:
        yield
    except (SleeperError, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is missing: {error}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read or write: {error}") from error
    except Exception as error:
        if place is not None and _is_full(str(error)):
            raise UnavailableError(f"cannot write {place}: {describe_full_disk(place)}") from error
        raise _classify(error, memory_property) from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            text = f"data could not be read, the engine panicked: {error}"
            raise classify_error(error, text, DataError) from error
        raise


def _is_full(text: str) -> bool:
    return "No space left" in text or "os error 28" in text


def _classify(error: Exception, memory_property: str | None) -> SleeperError:
    text = str(error)
    raised = _find_python_error(text)
    if raised is not None:
        return raised
    if _SPILL_FILE.search(text):
        return UnavailableError(f"the spill folder was removed or cannot be used: {text}")
    if "not found" in text or "No such file" in text:
        return StateMovedOnError(f"a data file is missing: {text}")
    if _is_full(text):
        return UnavailableError(f"the disk is full: {text}")
    if is_transient(error):
        return UnavailableError(f"cannot read or write: {text or type(error).__name__}")
    if any(failure in text for failure in _S3_FAILURES):
        return UnavailableError(f"S3 does not respond: {text}")
    if "Resources exhausted" in text:
        limit = f" (see {memory_property})" if memory_property else ""
        needed = text.rpartition("Resources exhausted: ")[2]
        return EngineMemoryError(f"out of memory{limit}: {needed}")
    return DataError(f"data could not be read: {text}")


def _find_python_error(text: str) -> SleeperError | None:
    """Returns the error of a Python function, such as the filter of deletes, None if it is other.

    The engine reports it as text: with Python's form of the error, or with its class and reason.
    """
    match = _PYTHON_ERROR.search(text)
    for kind in (StateMovedOnError, UnavailableError):
        if match is not None and match["kind"] == kind.__name__:
            return kind(ast.literal_eval(match["reason"]))
        if match is None and f"{kind.__name__}: " in text:
            return kind(text.rpartition(f"{kind.__name__}: ")[2])
    return None
