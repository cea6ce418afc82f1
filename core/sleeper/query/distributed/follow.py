"""The change feed of a table for a reader that comes back for more."""

import time
from dataclasses import dataclass

from sleeper.instance import OpenTable
from sleeper.query.distributed.change_feed import check_feed_start, next_version
from sleeper.query.distributed.feed_claim import FeedClaim, FollowerClaim, HoldClaim
from sleeper.query.distributed.service import FeedScan, plan_feed_scans
from sleeper.query.request import Query
from sleeper.tables.table_ref import TableId

# Who asks in a loop is not let ask the state more often while nothing comes.
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True)
class Followed:
    """A table to follow, and by whom: a follower's name, or an owner of holds."""

    table: OpenTable
    follower: str | None
    owner: str

    def claim(self) -> FeedClaim:
        """What keeps the feed's files."""
        state, instance = self.table.state, self.table.instance
        if self.follower is not None:
            return FollowerClaim(state, self.follower)
        seconds = instance.queries.engine().settings.hold_seconds
        return HoldClaim(state, seconds, instance.clock, self.owner)


class TableFollower:
    """Tells how far to read next, and keeps what is still to be read."""

    def __init__(self, followed: Followed) -> None:
        self._table = followed.table
        self._claim = followed.claim()
        self._nothing_at = -_SECONDS_BETWEEN_LOOKS

    @property
    def table_id(self) -> TableId:
        """Which table it is, whatever it is called."""
        return self._table.ref.id

    @property
    def newest(self) -> int:
        """The number of the table's newest transaction."""
        with self._table.state.reading() as state:
            return int(state.number)

    def begin(self, start: int) -> int:
        """Where to start the first time, if `start` is what is wanted. It is kept from now on."""
        version = self._claim.begin(start)
        check_feed_start(self._table.state, version)
        self._claim.keep(version)
        return version

    def next_version(self, start: int, files_max: int | None, last: int | None) -> int:
        """Up to which version to read, `start` if there is nothing yet.

        StateMovedOnError if there is nothing more to come, because the table was deleted.
        """
        self._claim.keep(start)
        if time.monotonic() - self._nothing_at < _SECONDS_BETWEEN_LOOKS:
            return start
        found = next_version(self._table.state, start, files_max, last)
        if found == start:
            self._nothing_at = time.monotonic()
            # Nothing ever comes of a table that is gone.
            self._table.check_active()
        return found

    def scans(self, start: int, end: int, query: Query, bytes_per_piece: int) -> list[FeedScan]:
        """What came after `start`, up to `end`."""
        self._claim.keep(start)
        return plan_feed_scans(self._table, start, end, query, bytes_per_piece)

    def has_read(self, end: int) -> None:
        """Nothing up to `end` is asked for again."""
        self._claim.has_read(end)

    def close(self) -> None:
        """The reader stops, perhaps to come back."""
        self._claim.release()
