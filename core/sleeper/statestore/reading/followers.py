"""The followers of a table, and how far each is behind.

A follower has read to its *position*, which passes every transaction. Its *lag* is the number of
those after the position that it reads: the changes of rows, or what its system reads instead.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.transaction import Subject
from sleeper.systems import follower_prefixes, load, systems


@dataclass(frozen=True, slots=True)
class Follower:
    """A named reader of changes. It has read to `position`, and reads `lag` transactions more.

    If it is passed, the table keeps not all transactions after the position: of those it would
    read, `lost` are gone.
    """

    name: str
    cursor_key: str
    start: int
    position: int
    lag: int
    lost: int = 0
    is_passed: bool = False

    @property
    def is_of_system(self) -> bool:
        """Whether it belongs to a system, and keeps all that it has not read."""
        return self.name.startswith(follower_prefixes())


def find_follower(
    state: TableState, name: str, cursor_key: str, start: int, cursor: int
) -> Follower:
    """Returns the follower with that cursor in the log."""
    position = max(start, cursor)
    kinds = _find_kinds(state, name)
    # Followers of a snapshot table skip versions that expired.
    horizon = 0 if state.is_snapshot_table else state.horizon
    lag = state.history.count(kinds, position, state.number)
    lost = state.history.count(kinds, position, horizon)
    return Follower(name, cursor_key, start, position, lag, lost, position < horizon)


def _find_kinds(state: TableState, follower: str) -> Collection[str]:
    """Returns the kinds of transactions that the follower reads."""
    for system in systems():
        prefix, reference = system.follower_prefix, system.follower_kinds
        if prefix is not None and reference is not None and follower.startswith(prefix):
            kinds: Collection[str] = load(reference)(state, follower.removeprefix(prefix))
            return kinds
    return kinds_of(Subject.ROWS)
