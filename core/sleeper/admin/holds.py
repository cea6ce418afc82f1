"""Who keeps versions of a table: holds, and followers of its log."""

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.statestore.transactions.holds import CreateFollower, DeleteFollower, ReleaseHold

_NAME_LENGTH_MAX = 200


def release_hold(instance: Instance, table_name: str, hold_id: str) -> None:
    """Lets the hold's version go. NotFoundError if the table has no such hold."""
    store = instance.table(table_name).state
    with store.reading() as state:
        if hold_id not in {hold.id for hold in state.collection.holds()}:
            raise NotFoundError(f"table {table_name!r} has no hold {hold_id!r}")
    store.commit_or_raise(ReleaseHold(hold_id))


def create_follower(
    instance: Instance, table_name: str, follower: str, start: int | None = None
) -> int:
    """Keeps what changes after `start`, by default the newest version, and returns that.

    ConflictError if the table has a follower of the name; InvalidRequestError if it cannot be
    a name, or what came after the start is not all there any more.
    """
    if not follower.strip() or not follower.isprintable() or len(follower) > _NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"invalid follower name: {follower[:40]!r} "
            f"(expected 1 to {_NAME_LENGTH_MAX} printable characters)"
        )
    store = instance.table(table_name).state
    if follower in {f.name for f in store.followers()}:
        raise ConflictError(f"table {table_name!r} already has a follower {follower!r}")
    with store.reading() as state:
        version = int(state.number) if start is None else start
        state.check_changes_after(version)
    store.commit_or_raise(CreateFollower(follower, version))
    return version


def delete_follower(instance: Instance, table_name: str, follower: str) -> None:
    """Keeps nothing for the follower any more. NotFoundError if the table has no such one."""
    store = instance.table(table_name).state
    if follower not in {f.name for f in store.followers()}:
        raise NotFoundError(f"table {table_name!r} has no follower {follower!r}")
    store.commit_or_raise(DeleteFollower(follower))
