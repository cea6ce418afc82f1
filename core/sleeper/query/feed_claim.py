"""What keeps the files of a change feed until its reader has had them.

A *follower* keeps them however long the reader is away, and must be deleted when it is not
wanted any more. Without one, a hold moves along with the reader: it keeps them while the
reader runs and for its time afterwards.
"""

from typing import Protocol

from sleeper.clock import Clock
from sleeper.errors import NotFoundError, SleeperError
from sleeper.query.change_feed import check_feed_start
from sleeper.query.shared_hold import SharedHold
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.followers import CreateFollower
from sleeper.statestore.transactions.holds import CreateHold, ReleaseHold
from sleeper.statestore.transactions.transaction import new_transaction_id


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
    """A hold that is taken anew, further on, when a third of its time is over."""

    def __init__(self, store: StateStore, seconds: int, clock: Clock, owner: str) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._owner = owner
        self._id: str | None = None
        self._hold: SharedHold | None = None

    def begin(self, version: int) -> int:
        return version

    def keep(self, version: int) -> None:
        if self._hold is not None and self._clock() < self._hold.renewal_ms:
            return
        check_feed_start(self._store, version)
        with self._store.reading() as state:
            until_ms = state.moment(self._clock()) + self._seconds * 1000
        taken = new_transaction_id()
        self._store.commit_or_raise(CreateHold(taken, self._owner, version, until_ms))
        self.release()
        self._id = taken
        self._hold = SharedHold(self._owner, version, self._seconds, until_ms)

    def has_read(self, version: int) -> None:
        """The hold moves when it is next due."""

    def release(self) -> None:
        if self._id is not None:
            try:
                self._store.commit(ReleaseHold(self._id))
            except SleeperError:
                return  # it expires
            self._id = self._hold = None
