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
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest that is, if one is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def reason_of(error: Exception) -> str:
    """What went wrong with a file, without its name and number."""
    strerror = getattr(error, "strerror", None)
    return strerror.lower() if strerror else str(error)


class SleeperError(Exception):
    """Any error of the product."""


class ConflictError(SleeperError):
    """Another writer was first. Refresh and try again."""


class UnavailableError(SleeperError):
    """Something needed did not answer. The message that asked may return later."""


class InvalidRequestError(SleeperError):
    """The request can never succeed as it stands. Reject it with this reason."""


class NotFoundError(SleeperError):
    """What the request names does not exist."""


class StateMovedOnError(SleeperError):
    """The state has moved on since the run began. Drop the run; nothing was changed."""


class DataError(SleeperError):
    """Stored data is not as it must be. Stop, and tell a person."""


class UserCodeError(SleeperError):
    """An iterator or compaction strategy failed. Nothing was changed; tell whoever wrote it."""
