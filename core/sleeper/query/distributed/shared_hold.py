"""A hold of a query that many processes run, and that none of them knows the end of.

Whoever plans the query takes it, unless there is one of the same owner on that version or an
earlier one, which keeps it too. A process that still reads when a third of the time is over
sees to another. So many short queries cost few entries in the log, and a long one too, however
many processes run it. Nobody releases such a hold: it ends by expiring.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, SleeperError, StateMovedOnError
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateHold
from sleeper.statestore.transactions.transaction import new_transaction_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedHold:
    """The version stays readable until `until_ms`. It is sent to the processes that read."""

    owner: str
    version: int
    seconds: int
    until_ms: int

    @property
    def renewal_ms(self) -> int:
        """From when on whoever needs the version must renew."""
        return self.until_ms - self.seconds * 2000 // 3


def take_shared_hold(
    store: StateStore, version: int, seconds: int, clock: Clock, owner: str
) -> SharedHold:
    """Keeps the version for two thirds of the time at least.

    StateMovedOnError if its files may be gone already.
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
    """Keeps the version, from a `with` in a process that reads, as long as that takes.

    `open_store` is called when it is due and not before: to open a state may cost a download.
    """

    def __init__(
        self, hold: SharedHold, open_store: Callable[[], StateStore], clock: Clock
    ) -> None:
        self._hold = hold
        self._open_store = open_store
        self._clock = clock
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_over = False

    def __enter__(self) -> None:
        """StateMovedOnError if the hold ran out and the version's files may be gone."""
        if self._clock() >= self._hold.renewal_ms:
            self._renew()
        with self._lock:
            self._start_timer()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()

    def _renew(self) -> None:
        hold = self._hold
        try:
            self._hold = take_shared_hold(
                self._open_store(), hold.version, hold.seconds, self._clock, hold.owner
            )
        except (InvalidRequestError, StateMovedOnError) as error:
            raise StateMovedOnError(
                f"version {hold.version} was not read for {hold.seconds} s and is kept no "
                f"longer, load the table again: {error}"
            ) from error

    def _renew_late(self) -> None:
        try:
            self._renew()
        except SleeperError as error:
            # The reading goes on; if files go, it says so itself.
            logger.warning("the hold on version %d: %s", self._hold.version, error)
            self._hold = replace(self._hold, until_ms=self._clock() + self._hold.seconds * 1000)
        with self._lock:
            if not self._is_over:
                self._start_timer()

    def _start_timer(self) -> None:
        seconds = max(self._hold.renewal_ms - self._clock(), 0) / 1000
        self._timer = threading.Timer(seconds, self._renew_late)
        self._timer.daemon = True
        self._timer.start()
