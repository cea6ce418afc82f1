"""Errors of databases by their SQLSTATE."""

from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError

# Classes of errors that depend on the request: wrong data, credentials, names, syntax.
_INVALID = frozenset({"0A", "21", "22", "23", "26", "28", "2F", "3D", "3F", "42", "44"})
# A query that writes: all reads are in read-only transactions.
_READ_ONLY = "25006"


def database_error(where: str, state: str | None, message: str) -> SleeperError:
    """Returns InvalidRequestError if a retry cannot succeed, else UnavailableError.

    `where` names the database. The message is the database's own.
    """
    text = f"{where}: {' '.join(message.split())}"
    if state is not None and (state[:2] in _INVALID or state == _READ_ONLY):
        return InvalidRequestError(text)
    return UnavailableError(text)
