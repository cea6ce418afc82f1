"""Holds. A hold keeps the files of a version from garbage collection until it expires.

A `VersionHold` belongs to one read of one process, which renews it.

A hold with an id that several processes know (a query message's, an Athena query's) is created by
the planner; any process can renew it, and one that ends the read can release it.

A *shared hold* belongs to an owner rather than to one read. A planner reuses a hold of the same
owner on the same version or an earlier one, unless a load replaced that one, and a process that
still reads after a third of the time makes sure of another. So many short reads, and a long read by
many processes, write few log entries. Nobody releases a shared hold, because no process knows when
the last one ends.
"""

import atexit
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import (
    InvalidRequestError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.renewal import Renewal
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateHold, ReleaseHold, RenewHold
from sleeper.statestore.transactions.transaction import new_transaction_id

logger = logging.getLogger(__name__)


def create_hold(
    store: StateStore,
    hold_id: str,
    owner: str,
    version: int,
    now_ms: int,
    seconds: int,
    period_ms: int = 1,
) -> None:
    """Creates the hold, or extends it if it exists, for at least the seconds.

    StateMovedOnError if files of the version may be deleted already.
    """
    expiry_ms = _expiry_ms(store, now_ms, seconds, period_ms)
    store.commit_or_raise(CreateHold(hold_id, owner, version, expiry_ms))


def renew_hold(
    store: StateStore, hold_id: str, now_ms: int, seconds: int, period_ms: int = 1
) -> None:
    """Extends the hold. Logs errors: a read whose files are gone fails itself."""
    try:
        expiry_ms = _expiry_ms(store, now_ms, seconds, period_ms)
        store.commit_or_raise(RenewHold(hold_id, expiry_ms))
    except SleeperError as error:
        logger.warning("could not renew hold %s: %s", hold_id, error)


def keep_hold(
    store: StateStore, hold_id: str, clock: Clock, seconds: int, period_ms: int = 1
) -> Renewal:
    """Returns a context that extends the hold at a third of its time."""

    def renew() -> None:
        renew_hold(store, hold_id, clock(), seconds, period_ms)

    return Renewal(f"renewal of hold {hold_id}", renew, seconds / 3)


def release_hold(store: StateStore, hold_id: str) -> None:
    """Releases the hold. Logs errors: a hold that is not released expires."""
    try:
        store.commit(ReleaseHold(hold_id))
    except SleeperError as error:
        logger.warning("could not release hold %s: %s", hold_id, error)


def _expiry_ms(store: StateStore, now_ms: int, seconds: int, period_ms: int) -> int:
    """Returns the expiry of a hold that lasts at least the seconds.

    It is rounded up to a multiple of the period, so that of the renewals in one period only the
    first writes to the log.
    """
    period_ms = max(period_ms, 1)
    with store.reading() as state:
        return -(-state.moment(now_ms) // period_ms) * period_ms + seconds * 1000


class VersionHold:
    """Protects the files of a version from garbage collection, from `acquire` to `release`.

    A background thread renews the hold at a third of its time. It expires if the process dies.
    Where this process may not or cannot write the state, as on a full disk, there is no hold, and
    a read fails with StateMovedOnError if its files are collected.
    """

    def __init__(
        self, store: StateStore, version: int, seconds: int, clock: Clock, owner: str
    ) -> None:
        self._store = store
        self._version = version
        self._seconds = seconds
        self._clock = clock
        self._owner = owner
        self._id = ""
        self._lock = threading.Lock()
        self._renewal: Renewal | None = None
        self._is_held = False
        self._is_released = False
        self._is_reported = False

    def acquire(self) -> None:
        """Creates the hold. StateMovedOnError if files of the version may be deleted already.

        While the state cannot be written, the read goes on without a hold, with a warning.
        """
        with self._lock:
            if self._is_possible():
                self._create_if_available()
                self._start(self._seconds / 3)

    def acquire_after(self, seconds: float) -> None:
        """Creates the hold after a delay, unless it is released before."""
        with self._lock:
            if self._is_possible():
                self._start(seconds)

    def release(self) -> None:
        """Releases the version. Never fails: a hold that remains expires."""
        with self._lock:
            if self._end():
                release_hold(self._store, self._id)

    def stop_renewal(self) -> None:
        """Renews the hold for the last time, so that it expires later. Never fails."""
        with self._lock:
            if self._end():
                renew_hold(self._store, self._id, self._clock(), self._seconds)

    def release_in_background(self) -> None:
        """Releases the hold in another thread.

        Python's garbage collector may call this while this thread is in a transaction.
        """
        thread = threading.Thread(target=self.release, name="release-hold", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter ends, so threads can no longer start, and no transaction runs.
            self.release()

    def _is_possible(self) -> bool:
        return not self._is_released and not self._is_held and self._store.accepts_commits

    def _end(self) -> bool:
        """Ends the renewal. Returns whether there was a hold."""
        was_held, self._is_held, self._is_released = self._is_held, False, True
        if self._renewal is not None:
            self._renewal.cancel()
        if was_held:
            atexit.unregister(self.release)
        return was_held

    def _create(self) -> None:
        now_ms = self._clock()
        self._id = new_transaction_id()
        owner = f"{self._owner} ({socket.gethostname()}, process {os.getpid()})"
        create_hold(self._store, self._id, owner, self._version, now_ms, self._seconds)
        self._is_held = True
        atexit.register(self.release)

    def _create_if_available(self) -> None:
        try:
            self._create()
        except UnavailableError as error:
            if not self._is_reported:
                logger.warning("reading version %d without a hold: %s", self._version, error)
            self._is_reported = True

    def _renew(self) -> None:
        with self._lock:
            if self._is_held:
                renew_hold(self._store, self._id, self._clock(), self._seconds)
            elif not self._is_released:
                self._create_if_available()

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


@dataclass(frozen=True, slots=True)
class SharedHold:
    """A claim on a version until `until_ms`, which planners send to the reading processes."""

    owner: str
    version: int
    seconds: int
    until_ms: int

    @property
    def renewal_ms(self) -> int:
        """The time after which a process that needs the version must renew the hold."""
        return self.until_ms - self.seconds * 2000 // 3


def take_shared_hold(
    store: StateStore, version: int, seconds: int, clock: Clock, owner: str
) -> SharedHold:
    """Returns a hold that lasts at least two thirds of the time, a new one if necessary.

    StateMovedOnError if files of the version may have been collected.
    """
    with store.reading() as state:
        now_ms = state.moment(clock())
        oldest = state.snapshots.find_version(version) if state.is_snapshot_table else 0
        until_ms = [
            hold.expiry_ms
            for hold in state.collection.holds()
            if hold.owner == owner and oldest <= hold.version <= version
        ]
    hold = SharedHold(owner, version, seconds, max(until_ms, default=0))
    if now_ms < hold.renewal_ms:
        return hold
    hold = replace(hold, until_ms=now_ms + seconds * 1000)
    store.commit_or_raise(CreateHold(new_transaction_id(), owner, version, hold.until_ms))
    return hold


class HoldRenewal:
    """A context that keeps the version of a shared hold while this process reads it.

    Opening a state may cost a download, so `open_store` is called only when a renewal is due.
    """

    def __init__(
        self, hold: SharedHold, open_store: Callable[[], StateStore], clock: Clock
    ) -> None:
        self._hold = hold
        self._open_store = open_store
        self._clock = clock
        self._renewal = Renewal(
            f"hold of version {hold.version}", self._renew_or_postpone, self._seconds_left
        )

    def __enter__(self) -> None:
        """StateMovedOnError if the hold expired and files of the version may be gone."""
        if self._clock() >= self._hold.renewal_ms:
            self._renew()
        self._renewal.start()

    def __exit__(self, *_: object) -> None:
        self._renewal.cancel()

    def _renew(self) -> None:
        hold = self._hold
        try:
            self._hold = take_shared_hold(
                self._open_store(), hold.version, hold.seconds, self._clock, hold.owner
            )
        except (InvalidRequestError, StateMovedOnError) as error:
            raise StateMovedOnError(
                f"the hold on version {hold.version} expired after {hold.seconds} s without a "
                f"read, load the table again: {error}"
            ) from error

    def _renew_or_postpone(self) -> None:
        try:
            self._renew()
        except SleeperError:
            # A read whose files are gone fails itself.
            self._hold = replace(self._hold, until_ms=self._clock() + self._hold.seconds * 1000)
            raise

    def _seconds_left(self) -> float:
        return max(self._hold.renewal_ms - self._clock(), 0) / 1000
