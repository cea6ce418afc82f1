"""Holds on the version of a snapshot table whose rows a queue exported last.

Its keys are compared with those of the next version, so it must stay readable until then. A queue
that has exported nothing holds the version that the table had when the queue began.
"""

from sleeper.errors import StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.query.hold import release_hold, take_shared_hold
from sleeper.statestore.holds import Hold
from sleeper.statestore.store import StateStore

_HOLD_SECONDS = 365 * 86_400


class QueueHold:
    """The holds of one queue, which has none on tables of another kind.

    They begin with the queue, are renewed when it captures, and expire a year after that.
    """

    def __init__(self, table: OpenTable, queue: str) -> None:
        self._table = table
        self._owner = _owner(queue)
        with table.state.reading(stale=True) as state:
            self.is_needed = state.is_snapshot_table

    def keep(self, number: int) -> bool:
        """Keeps the rows of the number. False if they have expired."""
        if not self.is_needed:
            return True
        store, clock = self._table.state, self._table.instance.clock
        with store.reading(stale=True) as state:
            if number < state.horizon:
                return False
            if not state.snapshots.find_version(number):
                return True
            if not any(each.contains(number) for each in state.snapshots.versions()):
                return False
        try:
            take_shared_hold(store, number, _HOLD_SECONDS, clock, self._owner)
        except StateMovedOnError:
            return False
        return True

    def find_former(self, number: int, position: int) -> int | None:
        """Returns a number at which the table has the rows that were exported before `number`.

        None before the first version. `position` is the number up to which the queue has captured.
        StateMovedOnError if the version is not held and has expired.
        """
        former = [hold.version for hold in self._owned() if hold.version < number]
        if former:
            return max(former)
        with self._table.state.reading(stale=True) as state:
            # Expired versions are forgotten, but then the horizon is above them.
            if position >= state.horizon and not state.snapshots.find_version(position):
                return None
        raise StateMovedOnError(f"the version of transaction {position} has expired")

    def release_before(self, position: int) -> None:
        """Releases versions before the last that is held at the position, and renewed holds.

        The version of the position may have expired before it was exported. The receiver then has
        the rows of an earlier one, which stays held.
        """
        if not self.is_needed:
            return
        held = [hold for hold in self._owned() if hold.version <= position]
        with self._table.state.reading() as state:
            last = state.snapshots.find_version(max((h.version for h in held), default=0))
        kept = max((h for h in held if h.version >= last), key=lambda h: h.expiry_ms, default=None)
        for hold in held:
            if hold is not kept:
                release_hold(self._table.state, hold.id)

    def _owned(self) -> list[Hold]:
        return [hold for hold in self._table.state.holds.all() if hold.owner == self._owner]


def find_holds(store: StateStore, queue: str) -> list[str]:
    """Returns the ids of all holds of a queue."""
    return [hold.id for hold in store.holds.all() if hold.owner == _owner(queue)]


def _owner(queue: str) -> str:
    return f"export queue {queue}"
