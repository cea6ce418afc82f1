"""A lease on a version of a table, for the duration of a long query."""

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
    """Protects the files of a version from garbage collection, from `acquire` to `release`.

    A background thread renews the hold at a third of its time. It expires if the process dies.
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
        self._is_held = False
        self._is_released = False

    def acquire(self) -> None:
        """Creates the hold. StateMovedOnError if files of the version may be deleted already."""
        with self._lock:
            if not self._is_released and not self._is_held:
                self._create()
                self._start(self._seconds / 3)

    def acquire_after(self, seconds: float) -> None:
        """Creates the hold after a delay, unless it is released before."""
        with self._lock:
            if not self._is_released and not self._is_held:
                self._start(seconds)

    def release(self) -> None:
        """Releases the version. Never fails: a hold that remains expires."""
        with self._lock:
            if self._end():
                try:
                    self._store.commit(ReleaseHold(self._id))
                except SleeperError as error:
                    logger.warning("could not release hold %s: %s", self._id, error)

    def stop_renewal(self) -> None:
        """Renews the hold for the last time, so that it expires later. Never fails."""
        with self._lock:
            if self._end():
                self._commit_renewal()

    def release_in_background(self) -> None:
        """Releases the hold in another thread.

        Python's garbage collector may call this while this thread is in a transaction.
        """
        threading.Thread(target=self.release, name="release-hold", daemon=True).start()

    def _end(self) -> bool:
        """Ends the renewal. Returns whether there was a hold."""
        was_held, self._is_held, self._is_released = self._is_held, False, True
        if self._renewal is not None:
            self._renewal.cancel()
        atexit.unregister(self.release)
        return was_held

    def _create(self) -> None:
        expiry_ms = self._expiry_ms()
        self._store.commit_or_raise(CreateHold(self._id, self._owner, self._version, expiry_ms))
        self._is_held = True
        atexit.register(self.release)

    def _renew(self) -> None:
        with self._lock:
            if self._is_held:
                self._commit_renewal()
            elif not self._is_released:
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
