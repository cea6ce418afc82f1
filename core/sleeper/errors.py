"""The errors of the product, one kind per thing that a caller does about it.

SleeperError
├── ConflictError         another writer was first: refresh and try again
├── UnavailableError      a service, disk or queue did not answer: let the message return
├── InvalidRequestError   the request is wrong: reject it, never retry
├── NotFoundError         what the request names does not exist
├── StateMovedOnError     the run came too late: drop it, nothing was changed
├── DataError             stored data is not as it must be: stop and alarm
└── UserCodeError         an iterator or strategy of a user failed: give up after some tries

Messages are in lower case and name what was found, where, and what was expected.
Adapters translate their library's errors into these at the edge.
"""

import difflib
import errno
import re
from collections.abc import Iterable

_TRANSIENT = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),  # resources of the machine
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE),  # the disk
        *(errno.EINTR, errno.EBUSY, errno.ETIMEDOUT),
    }
)
# How Rust and Arrow show the system's error number in a text.
_NUMBER_IN_TEXT = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+),|\[errno (\d+)\]")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest that is, if one is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def reason_of(error: Exception) -> str:
    """What went wrong with a file, without its name and number."""
    strerror = getattr(error, "strerror", None)
    return strerror.lower() if strerror else str(error)


def is_transient(error: BaseException) -> bool:
    """Whether the machine lacks memory, files or disk space, or its disk fails.

    Such an error says nothing about what was asked for: another try may succeed. Native
    libraries raise bare exceptions with the system's error number in their text.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _TRANSIENT
    found = _NUMBER_IN_TEXT.search(str(error))
    return found is not None and int(next(filter(None, found.groups()))) in _TRANSIENT


def failure_of(error: BaseException, text: str, otherwise: "type[SleeperError]") -> "SleeperError":
    """An UnavailableError if the cause is transient, else an error of the other kind."""
    return UnavailableError(text) if is_transient(error) else otherwise(text)


class SleeperError(Exception):
    """The base class of all errors that Sleeper raises."""


class ConflictError(SleeperError):
    """Another writer was first, or the name is taken. Refresh and retry."""


class UnavailableError(SleeperError):
    """A service, disk, queue or other resource is missing or does not answer. Retry later."""


class InvalidRequestError(SleeperError):
    """The request is wrong and can never succeed. Reject it with this reason."""


class NotFoundError(SleeperError):
    """The table, instance or other object that the request names does not exist."""


class StateMovedOnError(SleeperError):
    """The state has moved on since the run began. Drop the run; nothing was changed."""


class DataError(SleeperError):
    """Stored data is missing, damaged, or of a newer version. Stop and raise an alarm."""


class UserCodeError(SleeperError):
    """A user's iterator or compaction strategy failed. Nothing was changed; correct its code."""
