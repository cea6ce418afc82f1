"""Who keeps versions of a table: holds, and followers of its log."""

from sleeper.errors import NotFoundError
from sleeper.statestore.transactions.followers import DeleteFollower
from sleeper.statestore.transactions.holds import ReleaseHold
from sleeper.wiring.instance import Instance


def release_hold(instance: Instance, table_name: str, hold_id: str) -> None:
    """Lets the hold's version go. NotFoundError if the table has no such hold."""
    store = instance.table(table_name).state
    with store.reading() as state:
        if hold_id not in {hold.id for hold in state.collection.holds()}:
            raise NotFoundError(f"table {table_name!r} has no hold {hold_id!r}")
    store.commit_or_raise(ReleaseHold(hold_id))


def delete_follower(instance: Instance, table_name: str, follower: str) -> None:
    """Keeps nothing for the follower any more. NotFoundError if the table has no such one."""
    store = instance.table(table_name).state
    if follower not in {f.name for f in store.followers()}:
        raise NotFoundError(f"table {table_name!r} has no follower {follower!r}")
    store.commit_or_raise(DeleteFollower(follower))
