"""A hold of a long query on the version that it reads."""

import atexit
import logging
import os
import socket
import threading

from sleeper.clock import Clock
from sleeper.errors import SleeperError
from sleeper.renewal import Renewal
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateHold, ReleaseHold, RenewHold
from sleeper.statestore.transactions.transaction import new_transaction_id

logger = logging.getLogger(__name__)


class VersionHold:
    """Keeps a version's files from collection between `take` and `release`.

    It is renewed in the background at a third of its time, however slowly the rows are
    fetched, and expires by itself if the process dies.
    """

    def __init__(
        self, store: StateStore, version: int, seconds: int, clock: Clock, owner: str
    ) -> None:
        self._store = store
        self._version = version
        self._seconds = seconds
        self._clock = clock
        self._owner = f"{owner} ({socket.gethostname()}, process {os.getpid()})"
        self._id = new_transaction_id()
        self._lock = threading.Lock()
        self._renewal: Renewal | None = None
        self._is_taken = False
        self._is_over = False

    def take(self) -> None:
        """Takes the hold. StateMovedOnError if the version's files may be gone already."""
        with self._lock:
            if not self._is_over and not self._is_taken:
                self._create()
                self._start(self._seconds / 3)

    def acquire_after(self, seconds: float) -> None:
        """Takes the hold later, unless it is released before that."""
        with self._lock:
            if not self._is_over and not self._is_taken:
                self._start(seconds)

    def release(self) -> None:
        """Lets the version go. Never fails: a hold that stays expires."""
        with self._lock:
            if self._end():
                try:
                    self._store.commit(ReleaseHold(self._id))
                except SleeperError as error:
                    logger.warning("could not release hold %s: %s", self._id, error)

    def leave(self) -> None:
        """Ends the renewal and lets the hold expire after its full time. Never fails."""
        with self._lock:
            if self._end():
                self._commit_renewal()

    def release_in_background(self) -> None:
        """Releases from a thread of its own: for a garbage collector, which may have
        interrupted anything, a transaction of this thread included.
        """
        threading.Thread(target=self.release, name="release-hold", daemon=True).start()

    def _end(self) -> bool:
        """Ends the renewal; returns whether the hold was taken."""
        was_taken, self._is_taken, self._is_over = self._is_taken, False, True
        if self._renewal is not None:
            self._renewal.cancel()
        atexit.unregister(self.release)
        return was_taken

    def _create(self) -> None:
        expiry_ms = self._expiry_ms()
        self._store.commit_or_raise(CreateHold(self._id, self._owner, self._version, expiry_ms))
        self._is_taken = True
        atexit.register(self.release)

    def _renew(self) -> None:
        with self._lock:
            if self._is_taken:
                self._commit_renewal()
            elif not self._is_over:
                self._create()

    def _commit_renewal(self) -> None:
        try:
            self._store.commit_or_raise(RenewHold(self._id, self._expiry_ms()))
        except SleeperError as error:
            logger.warning("could not renew hold %s: %s", self._id, error)

    def _expiry_ms(self) -> int:
        with self._store.reading() as state:
            return state.moment(self._clock()) + self._seconds * 1000

    def _start(self, first_seconds: float) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        # A hold that cannot be created ends the renewal. The query continues, and fails by
        # itself if its files are collected.
        self._renewal = Renewal(
            f"hold of version {self._version}",
            self._renew,
            self._seconds / 3,
            first_seconds=first_seconds,
            ends_on=SleeperError,
        )
        self._renewal.start()
