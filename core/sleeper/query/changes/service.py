"""Opens the change feed of a table."""

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.query.changes.reader import ChangeReader, ChangesRequest
from sleeper.query.result import TimeLimit
from sleeper.statestore.version import PointInTime, parse_version


def open_changes(
    instance: Instance,
    table_name: str,
    request: ChangesRequest,
    commits: bool = True,
    limit: TimeLimit | None = None,
) -> ChangeReader:
    """Opens a part of a table's feed. With `commits` a follower's position is recorded while read.

    InvalidRequestError if the start or end is not readable, or the follower's name is not valid;
    while it is read, if the limit is exceeded.
    """
    return ChangeReader(instance.table(table_name), request, commits, limit)


def make_changes_request(
    since: object = None,
    first: int | None = None,
    last: int | None = None,
    follow: bool = False,
    follower: str | None = None,
) -> ChangesRequest:
    """Returns the request. InvalidRequestError for values that are not valid together."""
    if since is not None and first is not None:
        raise InvalidRequestError(
            f"two starts: since {since} and transaction {first} (expected one of them)"
        )
    for name, number, least in (("start", first, 0), ("end", last, 1)):
        if number is not None and number < least:
            raise InvalidRequestError(f"the {name} is {number} (expected a transaction number)")
    if first is not None and last is not None and last < first:
        raise InvalidRequestError(f"the end is {last} (expected the start, {first}, or more)")
    return ChangesRequest(
        None if since is None else _parse_since(since), first, last, follow, follower
    )


def _parse_since(since: object) -> PointInTime:
    try:
        point = parse_version(since)
    except InvalidRequestError:
        pass  # its message also allows a number
    else:
        if isinstance(point, PointInTime):
            return point
    raise InvalidRequestError(
        f"since {since!r:.200}: expected a time such as 2026-01-31T12:00:00Z, or an age such as 2d"
    )
