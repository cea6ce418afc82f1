"""Error types, one per reaction of a caller.

SleeperError
├── ConflictError         another writer committed first: refresh and retry
├── UnavailableError      a service, disk or queue did not respond: return the message
├── InvalidRequestError   the request is invalid: reject it, never retry
├── NotFoundError         the named object does not exist
├── StateMovedOnError     the state changed since the run began: drop the run
├── DataError             stored data is damaged or missing: stop and raise an alarm
└── UserCodeError         a user's iterator, strategy or exporter failed: limit the retries

Messages are in lower case and state the value, its place and the expected value.
Implementations of ports convert the errors of their libraries to these types.
"""

import difflib
import errno
import re
from collections.abc import Iterable

_TRANSIENT = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),  # resources of the machine
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),  # space
        *(errno.EIO, errno.EROFS, errno.ESTALE),  # the disk
        *(errno.EINTR, errno.EBUSY, errno.ETIMEDOUT),
    }
)
# The formats in which Rust and Arrow print the error number of the system.
_NUMBER_IN_TEXT = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+),|\[errno (\d+)\]")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message on an unknown name: the most similar known name."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def describe_error(error: Exception) -> str:
    """Returns the reason of a file error, without path and error number."""
    strerror = getattr(error, "strerror", None)
    return strerror.lower() if strerror else str(error)


def read_only_error(location: object) -> "InvalidRequestError":
    """Returns the error of a change in an instance that was opened read-only."""
    return InvalidRequestError(
        f"cannot change {location}: the instance is open read-only (expected an opening without "
        "read_only, --read-only and SLEEPER_READ_ONLY)"
    )


def is_transient(error: BaseException) -> bool:
    """Returns whether the machine lacks memory, files or disk space, or its disk fails.

    Such an error does not depend on the request, so a retry may succeed. Native libraries raise
    bare exceptions with the error number of the system in their text.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _TRANSIENT
    match = _NUMBER_IN_TEXT.search(str(error))
    return match is not None and int(next(filter(None, match.groups()))) in _TRANSIENT


def classify_error(
    error: BaseException, text: str, default: "type[SleeperError]"
) -> "SleeperError":
    """Returns an UnavailableError if the cause is transient, else an error of the default type."""
    return UnavailableError(text) if is_transient(error) else default(text)


class SleeperError(Exception):
    """The base class of all errors that Sleeper raises."""


class ConflictError(SleeperError):
    """Another writer committed first, or the name is taken. Refresh and retry."""


class UnavailableError(SleeperError):
    """A service, disk, queue or other resource is missing or does not respond. Retry later."""


class InvalidRequestError(SleeperError):
    """The request is invalid and can never succeed. Reject it with this reason."""


class NotFoundError(SleeperError):
    """The requested table, instance or other object does not exist."""


class StateMovedOnError(SleeperError):
    """The state changed since the run began. Drop the run; it changed nothing."""


class DataError(SleeperError):
    """Stored data is missing, damaged, or of a newer version. Stop and raise an alarm."""


class UserCodeError(SleeperError):
    """A user's iterator, strategy or exporter failed and changed nothing. Correct its code."""
