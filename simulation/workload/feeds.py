"""Operations of followers that read for a long time: a feed stays open, and steps read it on.

A follower keeps what it receives as a `Copy`, and has its transactions whole. It may be killed
after any change: the next reader begins where the position was recorded, and receives the changes
of the last transaction again.
"""

from simulation.workload.client import Client, OpenFeed
from simulation.workload.copies import (
    begin_copy,
    end_copy,
    followed_tables,
    has_followed,
    has_same_fields,
    receive,
    receive_end,
)
from simulation.workload.registry import operation
from sleeper.errors import InvalidRequestError
from sleeper.query.changes.reader import ChangesRequest
from sleeper.query.changes.service import open_changes

_FEEDS_MAX = 2
_FOLLOWER = "feed"


def _may_open(client: Client) -> bool:
    return has_followed(client) and len(client.feeds) < _FEEDS_MAX


@operation(2, _may_open)
def open_feed(client: Client) -> None:
    """Opens the feed of a table for a follower, where an earlier reader of it ended."""
    table = client.random.choice(followed_tables(client))
    key = f"{table.id} {_FOLLOWER}"
    copy = client.journal.copies.get(key)
    if copy is None:
        copy = client.journal.copies[key] = begin_copy(client, table)
    request = ChangesRequest(first=copy.number + 1, follower=_FOLLOWER)
    try:
        changes = open_changes(client.instance, table.name, request)
    except InvalidRequestError:
        end_copy(client, table, key, _FOLLOWER)
        raise
    if not has_same_fields(copy, changes.schema):
        changes.close()
        end_copy(client, table, key, _FOLLOWER)
        return
    client.feeds.append(OpenFeed(table, copy, changes, copy.begin_reading()))


def _has_feed(client: Client) -> bool:
    return bool(client.feeds)


@operation(6, _has_feed)
def read_feed(client: Client) -> None:
    """Receives a few changes of an open feed, which is closed at its end."""
    feed = client.random.choice(client.feeds)
    try:
        for _ in range(client.random.randint(1, 3)):
            change = next(iter(feed.changes), None)
            if feed.turn != feed.copy.turn:
                _close(client, feed)
                return
            if change is None:
                receive_end(feed.copy, feed.changes)
                _close(client, feed)
                return
            receive(feed.copy, change)
    except BaseException:
        _close(client, feed)
        raise


def _close(client: Client, feed: OpenFeed) -> None:
    client.feeds.remove(feed)
    feed.changes.close()
