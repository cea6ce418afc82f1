"""Holds of reads that several processes execute.

A hold keeps the files of a version from garbage collection until it expires.

A hold with an id that all processes know (a query message's, an Athena query's) is created by the
planner; any process can renew it, and one that ends the read can release it.

A *shared hold* belongs to an owner rather than to one read. A planner reuses a hold of the same
owner on the same version or an earlier one, and a process that still reads after a third of the
time makes sure of another. So many short reads, and a long read by many processes, write few log
entries. Nobody releases a shared hold, because no process knows when the last one ends.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, SleeperError, StateMovedOnError
from sleeper.renewal import Renewal
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateHold, ReleaseHold, RenewHold
from sleeper.statestore.transactions.transaction import new_transaction_id

logger = logging.getLogger(__name__)

logger = logging.getLogger(__name__)


def hold_expiry_ms(state: TableState, now_ms: int, seconds: int, period_ms: int = 1) -> int:
    """Returns the expiry of a hold that lasts at least the seconds.

    It is rounded up to a multiple of the period, so that of the renewals in one period only the
    first writes to the log.
    """
    period_ms = max(period_ms, 1)
    return -(-state.moment(now_ms) // period_ms) * period_ms + seconds * 1000


def renew_hold(
    store: StateStore, hold_id: str, now_ms: int, seconds: int, period_ms: int = 1
) -> None:
    """Extends the hold. Logs errors: a read whose files are gone fails itself."""
    try:
        with store.reading() as state:
            expiry_ms = hold_expiry_ms(state, now_ms, seconds, period_ms)
        store.commit_or_raise(RenewHold(hold_id, expiry_ms))
    except SleeperError as error:
        logger.warning("could not renew hold %s: %s", hold_id, error)


def release_hold(store: StateStore, hold_id: str) -> None:
    """Releases the hold. Logs errors: a hold that is not released expires."""
    try:
        store.commit(ReleaseHold(hold_id))
    except SleeperError as error:
        logger.warning("could not release hold %s: %s", hold_id, error)


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
        until_ms = [
            hold.expiry_ms
            for hold in state.collection.holds()
            if hold.owner == owner and hold.version <= version
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
