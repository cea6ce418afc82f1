"""What keeps the files of a change feed until its reader has had them.

A *follower* keeps them however long the reader is away, and must be deleted when it is not
wanted any more. Without one, a hold moves along with the reader: it keeps them while the
reader runs and for its time afterwards.
"""

from typing import Protocol

from sleeper.clock import Clock
from sleeper.errors import NotFoundError
from sleeper.query.distributed.change_feed import check_feed_start
from sleeper.query.hold import VersionHold
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateFollower


class FeedClaim(Protocol):
    """Keeps what came after the version that its reader has come to."""

    def begin(self, version: int) -> int:
        """From which version a reader starts that is new, if it wants this one."""

    def keep(self, version: int) -> None:
        """The reader needs what came after the version. Cheap if it is kept already.

        StateMovedOnError or InvalidRequestError if it cannot be kept any more.
        """

    def has_read(self, version: int) -> None:
        """The reader never comes back to what is not after the version."""

    def release(self) -> None:
        """The reader stops."""


class FollowerClaim:
    """A named follower: made when first used, and where its readers go on."""

    def __init__(self, store: StateStore, name: str) -> None:
        self._store = store
        self._name = name
        self._is_there = False

    def begin(self, version: int) -> int:
        """Where the follower is, if it is there: an earlier start may have died just after."""
        found = [f.position for f in self._store.followers() if f.name == self._name]
        return found[0] if found else version

    def keep(self, version: int) -> None:
        if self._is_there:
            return
        if all(f.name != self._name for f in self._store.followers()):
            self._store.commit_or_raise(CreateFollower(self._name, version))
        self._is_there = True

    def has_read(self, version: int) -> None:
        try:
            self._store.advance_follower(self._name, version)
        except NotFoundError:
            # Somebody deleted it under a running reader, which begins it anew where it is.
            self._is_there = False

    def release(self) -> None:
        """It stays."""


class HoldClaim:
    """A hold that is renewed in the background, and moves on with its reader.

    Spark asks for offsets only between micro-batches, so a timer renews the hold in a long one.
    """

    def __init__(self, store: StateStore, seconds: int, clock: Clock, owner: str) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._owner = owner
        self._hold: VersionHold | None = None
        self._move_ms = 0

    def begin(self, version: int) -> int:
        return version

    def keep(self, version: int) -> None:
        """Moves the hold to the version, at most once in a third of the hold's time."""
        if self._hold is not None and self._clock() < self._move_ms:
            return
        check_feed_start(self._store, version)
        hold = VersionHold(self._store, version, self._seconds, self._clock, self._owner)
        hold.take()
        if self._hold is not None:
            self._hold.release()
        self._hold = hold
        self._move_ms = self._clock() + self._seconds * 1000 // 3

    def has_read(self, version: int) -> None:
        """Does nothing: `keep` moves the hold."""

    def release(self) -> None:
        """Leaves the hold to expire, so that a stream that is started again soon can go on."""
        if self._hold is not None:
            self._hold.leave()
            self._hold = None
