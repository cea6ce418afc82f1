"""Holds. A hold keeps the files of a version from garbage collection until it expires.

A `VersionHold` belongs to one read of one process. Short reads share the floor of their process
(`sleeper.statestore.floor`), so that they write nothing.

A hold with an id that several processes know (a query message's, an Athena query's) is created by
the planner; any process can renew it, and one that ends the read can release it.

A *shared hold* belongs to an owner rather than to one read. A planner reuses a hold of the same
owner on the same version or an earlier one, unless a load replaced that one, and a process that
still reads after a third of the time makes sure of another. So many short reads, and a long read by
many processes, write little. Nobody releases a shared hold, because no process knows when
the last one ends.
"""

import atexit
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import ClassVar

from sleeper.clock import Clock
from sleeper.errors import (
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.renewal import Renewal
from sleeper.statestore.holds import Hold
from sleeper.statestore.store import StateStore
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
    is_new: bool = False,
) -> None:
    """Creates the hold, or extends it if it exists, for at least the seconds.

    StateMovedOnError if files of the version may be deleted already.
    """
    expiry_ms = _expiry_ms(store, now_ms, seconds, period_ms)
    store.holds.take(Hold(hold_id, owner, version, expiry_ms), is_new)


def extend_hold(
    store: StateStore, hold_id: str, now_ms: int, seconds: int, period_ms: int = 1
) -> None:
    """Extends a hold that was created. StateMovedOnError if it expired or was released."""
    store.holds.extend(hold_id, _expiry_ms(store, now_ms, seconds, period_ms))


def renew_hold(
    store: StateStore, hold_id: str, now_ms: int, seconds: int, period_ms: int = 1
) -> None:
    """Extends the hold. Logs errors: a read whose files are gone fails itself."""
    try:
        extend_hold(store, hold_id, now_ms, seconds, period_ms)
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
        store.release_hold(hold_id)
    except SleeperError as error:
        logger.warning("could not release hold %s: %s", hold_id, error)


def _expiry_ms(store: StateStore, now_ms: int, seconds: int, period_ms: int) -> int:
    """Returns the expiry of a hold that lasts at least the seconds.

    It is rounded up to a multiple of the period, so that of the renewals in one period only the
    first writes.
    """
    period_ms = max(period_ms, 1)
    with store.reading() as state:
        return -(-state.moment(now_ms) // period_ms) * period_ms + seconds * 1000


class VersionHold:
    """Protects the files of a version from garbage collection, from `acquire` to `release`.

    A short read is under the floor of its process. After a minute, or a third of the hold's time
    if that is less, a background thread takes a hold of the version, and renews it at a third of
    its time. It expires if the process dies.
    Where this process may not or cannot write holds, as on a full disk, there is no hold, and
    a read fails with StateMovedOnError if its files are collected.
    """

    # A floor keeps more files than a version does. With 0, each read has a hold of its own.
    under_floor_seconds: ClassVar[float] = 60.0

    def __init__(
        self, store: StateStore, version: int, seconds: int, clock: Clock, owner: str
    ) -> None:
        self._store = store
        self._version = version
        self._seconds = seconds
        self._clock = clock
        self._owner = owner
        self._id = ""  # of the hold that was written, or may have been
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._renewal: Renewal | None = None
        self._state = _State.NOT_HELD
        self._is_reported = False

    def acquire(self) -> None:
        """Keeps the version. StateMovedOnError if files of the version may be deleted already.

        While holds cannot be written, the read goes on without a hold, with a warning.
        """
        with self._lock:
            if self._is_possible():
                self._enter_if_available()
                under_floor = self._state is _State.UNDER_FLOOR
                period = self._seconds / 3
                self._start(min(self.under_floor_seconds, period) if under_floor else period)

    def acquire_after(self, seconds: float) -> None:
        """Keeps the version after a delay, unless it is released before."""
        with self._lock:
            if self._is_possible():
                self._start(seconds)

    def release(self) -> None:
        """Releases the version. Never fails: a hold that remains expires.

        In a fork it does nothing, because the parent still reads.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            before = self._end()
            if before is _State.UNDER_FLOOR:
                self._store.floor.leave(self._version)
            if self._id:
                release_hold(self._store, self._id)
                self._id = ""

    def stop_renewal(self) -> None:
        """Renews the hold for the last time, so that it expires later. Never fails."""
        with self._lock:
            before = self._end()
            if before is _State.UNDER_FLOOR:
                self._take_and_leave()
            elif before is _State.HELD:
                renew_hold(self._store, self._id, self._clock(), self._seconds)
            self._id = ""

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
        return self._state is _State.NOT_HELD and self._store.holds.accepts_writes

    def _end(self) -> "_State":
        """Ends the renewal. Returns how the version was held."""
        before, self._state = self._state, _State.RELEASED
        if self._renewal is not None:
            self._renewal.cancel()
        if before is _State.HELD:
            atexit.unregister(self.release)
        return before

    def _enter_if_available(self) -> None:
        try:
            if self.under_floor_seconds:
                self._store.floor.enter(self._store.holds, self._version)
                self._state = _State.UNDER_FLOOR
                _stores_with_floors.add(self._store)
            else:
                self._take()
        except UnavailableError as error:
            if not self._is_reported:
                logger.warning("reading version %d without a hold: %s", self._version, error)
            self._is_reported = True

    def _take(self) -> None:
        self._id = self._id or new_transaction_id()
        owner = f"{self._owner} ({socket.gethostname()}, process {os.getpid()})"
        try:
            create_hold(
                self._store,
                self._id,
                owner,
                self._version,
                self._clock(),
                self._seconds,
                is_new=True,
            )
        except StateMovedOnError:
            self._id = ""
            raise
        self._state = _State.HELD
        atexit.register(self.release)

    def _take_and_leave(self) -> None:
        """Takes a hold that nobody renews, and leaves the floor."""
        try:
            self._take()
        except SleeperError as error:
            logger.warning("could not hold version %d: %s", self._version, error)
        self._store.floor.leave(self._version)
        self._end()

    def _renew(self) -> None:
        with self._lock:
            if self._state is _State.HELD:
                renew_hold(self._store, self._id, self._clock(), self._seconds)
            elif self._state is _State.UNDER_FLOOR:
                self._take()
                self._store.floor.leave(self._version)
            elif self._state is _State.NOT_HELD:
                self._enter_if_available()

    def _start(self, first_seconds: float) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        # A version that can no longer be held ends the renewal. The query continues, and fails by
        # itself if its files are collected.
        self._renewal = Renewal(
            f"hold of version {self._version}",
            self._renew,
            self._seconds / 3,
            first_seconds=first_seconds,
            ends_on=(StateMovedOnError, NotFoundError, InvalidRequestError),
        )
        self._renewal.start()


class _State(Enum):
    NOT_HELD = auto()
    UNDER_FLOOR = auto()
    HELD = auto()
    RELEASED = auto()


_stores_with_floors: "weakref.WeakSet[StateStore]" = weakref.WeakSet()


def _end_floors() -> None:
    for store in list(_stores_with_floors):
        with suppress(SleeperError):  # it expires
            store.floor.end(store.holds)


atexit.register(_end_floors)


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
    holds = store.holds.all()
    with store.reading() as state:
        now_ms = state.moment(clock())
        oldest = state.snapshots.find_version(version) if state.is_snapshot_table else 0
        until_ms = [
            hold.expiry_ms
            for hold in holds
            if hold.owner == owner and oldest <= hold.version <= version
        ]
    hold = SharedHold(owner, version, seconds, max(until_ms, default=0))
    if now_ms < hold.renewal_ms:
        # The process that wrote it may be about to give it up.
        store.holds.check(version)
        return hold
    hold = replace(hold, until_ms=now_ms + seconds * 1000)
    taken = Hold(new_transaction_id(), owner, version, hold.until_ms)
    store.holds.take(taken, is_new=True)
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
