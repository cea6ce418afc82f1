"""What keeps a table's versions: holds, snapshots, the log's length."""

from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.statestore.transactions.holds import ReleaseHold
from sleeper.wiring.instance import Instance


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The number of the state that was stored, and up to which number the log was trimmed."""

    number: int
    trimmed_to: int


def take_snapshot(instance: Instance, table_name: str) -> SnapshotTaken:
    """Stores the table's state, and trims the log as far as nobody needs it."""
    state = instance.table(table_name).state
    return SnapshotTaken(state.save_snapshot(), state.trim())


def release_hold(instance: Instance, table_name: str, hold_id: str) -> None:
    """Lets the hold's version go. NotFoundError if the table has no such hold."""
    store = instance.table(table_name).state
    with store.reading() as state:
        if hold_id not in {hold.id for hold in state.collection.holds()}:
            raise NotFoundError(f"table {table_name!r} has no hold {hold_id!r}")
    store.commit_or_raise(ReleaseHold(hold_id))
