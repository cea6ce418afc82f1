"""Holds: expiring claims of readers on versions, beside the log.

A *hold* keeps the files of a version until it expires. It is written beside the log, so readers
change no log and need no permission on it. Without a common transaction, two rules make it safe:

- A reader writes its hold, and then reads the newest state. If the version is no longer one that a
  read may begin at, the reader gives it up.
- A collector reads the holds, and *raises the horizon* by a commit to what they allow. Then it
  reads the holds again, and leaves the files that any of them needs.

A hold that was written before the horizon passed its version is seen by the second reading, and
keeps its version readable for its holder although the horizon is above. One that was written later
finds the horizon, and is given up before a row is read.

Holds end by the later of the collector's clock and the log's time, and `MARGIN_MS` after their
expiry, because clocks differ. A reader that sleeps longer fails when its files are gone.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sleeper.clock import Clock
from sleeper.errors import NotFoundError, StateMovedOnError

if TYPE_CHECKING:
    from sleeper.statestore.reading.table_state import TableState

MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Hold:
    """An expiring claim on a version, or on all versions from it on if it `is_floor`."""

    id: str
    owner: str
    version: int
    expiry_ms: int
    is_floor: bool = False


class HoldStore(Protocol):
    """The holds of one table. Durable on return. Raises only `sleeper.errors`."""

    @property
    def accepts_writes(self) -> bool:
        """Whether this process may write holds. False saves reads that cannot the attempt."""
        ...

    def all(self) -> Sequence[Hold]:
        """Returns every hold, also expired ones. Sees each write that returned before."""
        ...

    def put(self, hold: Hold) -> None:
        """Writes the hold, in place of an earlier one with its id."""
        ...

    def extend(self, hold_id: str, expiry_ms: int) -> bool:
        """Sets the expiry of a hold. Returns False if it does not exist."""
        ...

    def delete(self, hold_ids: Sequence[str]) -> None:
        """Deletes holds. Missing ones are no error."""
        ...

    def forget(self, expiry_max_ms: int) -> None:
        """Deletes the holds that expire then or before, unless the store does that by itself.

        A hold that is extended meanwhile stays.
        """
        ...


class OpenState(Protocol):
    """Opens the state of a table."""

    def __call__(self, *, stale: bool = False) -> AbstractContextManager["TableState"]: ...


class Holds:
    """The holds of a table, with those that older versions of Sleeper wrote into its log.

    `reading` opens the newest state, with `stale` that which this process has.
    """

    def __init__(self, port: HoldStore, reading: OpenState, clock: Clock) -> None:
        self._port = port
        self._reading = reading
        self._clock = clock

    @property
    def accepts_writes(self) -> bool:
        """Whether this process may write holds, as far as it is known without a request."""
        return self._port.accepts_writes

    def all(self) -> list[Hold]:
        """Returns every hold, also expired ones, oldest version first."""
        with self._reading() as state:
            logged = state.collection.logged_holds()
        return sorted((*self._port.all(), *logged), key=lambda h: (h.version, h.id))

    def unexpired(self) -> list[Hold]:
        """Returns the holds that keep their versions, oldest version first."""
        moment_ms = self._moment_ms()
        return [hold for hold in self.all() if not is_over(hold, moment_ms)]

    def take(self, hold: Hold, is_new: bool = False) -> None:
        """Writes a hold, or extends the one with its id, unless this process made the id: `is_new`.

        Its expiry never moves back. StateMovedOnError if no read may begin at the version, or the
        id is of another version.
        """
        before = None if is_new else self._find(hold.id)
        if before is not None and before.version != hold.version:
            raise StateMovedOnError(
                f"hold {hold.id} keeps version {before.version}, not {hold.version}"
            )
        if before is None:
            self._port.put(hold)
        elif before.expiry_ms < hold.expiry_ms:
            self._extend(before, hold.expiry_ms)
        try:
            # A hold that another process wrote may be one that it is about to give up.
            self.check(hold.version)
        except StateMovedOnError:
            if is_new:  # or another process, which wrote it earlier, may rely on it
                self._port.delete([hold.id])
            raise

    def write_floor(self, hold_id: str, owner: str, version: int, seconds: int) -> None:
        """Writes a floor of so many seconds, whether or not a read may begin at the version."""
        expiry_ms = self._moment_ms() + seconds * 1000
        self._port.put(Hold(hold_id, owner, version, expiry_ms, is_floor=True))

    def newest(self) -> int:
        """Returns the number of the newest transaction."""
        with self._reading() as state:
            return int(state.number)

    def check(self, version: int) -> None:
        """Raises StateMovedOnError if no read may begin at the version of the newest state."""
        with self._reading() as state:
            fault = state.find_fault(version)
        if fault:
            raise StateMovedOnError(fault)

    def extend(self, hold_id: str, expiry_ms: int) -> None:
        """Extends a hold that was taken.

        StateMovedOnError if it was released, or it expired and no read may begin at its version.
        """
        before = next((hold for hold in self._port.all() if hold.id == hold_id), None)
        if before is None:
            raise StateMovedOnError(f"hold {hold_id} does not exist: it expired or was released")
        if before.expiry_ms < expiry_ms:
            self._extend(before, expiry_ms)
        # Until a hold expires, every collector sees it, so its version is kept. One that expired
        # is like a new one.
        if self._moment_ms() >= before.expiry_ms:
            self.check(before.version)

    def _extend(self, hold: Hold, expiry_ms: int) -> None:
        if not self._port.extend(hold.id, expiry_ms):
            raise StateMovedOnError(f"hold {hold.id} was released")

    def release(self, hold_ids: Iterable[str]) -> None:
        """Deletes holds. Missing ones are no error."""
        self._port.delete(list(hold_ids))

    def forget_expired(self) -> None:
        """Deletes the holds that are over."""
        moment_ms = self._moment_ms()
        if any(is_over(hold, moment_ms) for hold in self._port.all()):
            # Their holders may wake and extend them now.
            self._port.forget(moment_ms - MARGIN_MS)

    def _find(self, hold_id: str) -> Hold | None:
        """Returns the hold of the id, if it has not expired."""
        moment_ms = self._moment_ms()
        found = [h for h in self._port.all() if h.id == hold_id and h.expiry_ms > moment_ms]
        return found[0] if found else None

    def _moment_ms(self) -> int:
        try:
            with self._reading(stale=True) as state:
                return int(state.moment(self._clock()))
        except NotFoundError:  # a new process has no copy of the state yet
            with self._reading() as state:
                return int(state.moment(self._clock()))


def is_over(hold: Hold, moment_ms: int) -> bool:
    """Returns whether the hold keeps its version no longer."""
    return hold.expiry_ms + MARGIN_MS <= moment_ms
