"""The versions at which a stash copies tables, and the holds that keep them readable.

Versions of several tables at one moment need no clock. All newest numbers are read, and then read
again. If none has changed, every table had its number at any moment between the two readings.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from sleeper.errors import NotFoundError, StateMovedOnError, UnavailableError
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.hold import create_hold, extend_hold, release_hold
from sleeper.retries import Backoff, retry
from sleeper.stash.properties import STASH_HOLD_MINUTES, STASH_PIECE_BYTES
from sleeper.stash.record import TableVersion
from sleeper.statestore.transactions.transaction import new_transaction_id
from sleeper.tables import TableState

# A table moves on at each commit, so the waits stay short.
_ATTEMPTS = Backoff(seconds_first=0.001, seconds_max=0.05, seconds_total=30)
_HOLD_ATTEMPTS = Backoff(5, seconds_first=0.1)
_MINUTE_MS = 60_000


class LostTableError(StateMovedOnError):
    """A stash cannot be completed: a table that it needs was deleted, or files of its version were.

    Or of its root at the destination, or another instance writes that root.
    """


class _ChangedError(Exception):
    """A table has changed between the two readings."""


def hold_newest(table: OpenTable, owner: str) -> TableVersion:
    """Returns the newest version of a table, which a hold keeps readable."""

    def acquire() -> TableVersion:
        return _hold(table, _newest(table), owner)

    return retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)


def hold_each(tables: Iterable[OpenTable], owner: str, may_vanish: bool) -> list[TableVersion]:
    """Returns the newest version of each table, which holds keep readable.

    If `may_vanish`, tables that are deleted meanwhile are omitted.
    """
    with ExitStack() as attempt:
        versions = []
        for table in tables:
            try:
                version = hold_newest(table, owner)
            except (NotFoundError, StateMovedOnError):
                if not may_vanish or _exists(table):
                    raise
                continue
            attempt.callback(release_hold, table.state, version.hold)
            versions.append(version)
        attempt.pop_all()
    return versions


def hold_at_one_moment(tables: Sequence[OpenTable], owner: str) -> list[TableVersion]:
    """Returns the versions that the tables had at one moment, which holds keep readable.

    UnavailableError if the tables change so often that there is none.
    """

    def acquire() -> list[TableVersion]:
        with ExitStack() as attempt:
            versions = []
            for table, number in zip(tables, _read_unchanged(tables), strict=True):
                version = _hold(table, number, owner)
                attempt.callback(release_hold, table.state, version.hold)
                versions.append(version)
            attempt.pop_all()
        return versions

    return retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)


def renew_holds(instance: Instance, versions: Iterable[TableVersion], owner: str) -> None:
    """Renews the holds of the versions, or takes them again.

    LostTableError if files of a version may have been deleted. Deleted tables are omitted.
    """
    hold_ms = hold_minutes(instance) * _MINUTE_MS
    for table, version in _active(instance, versions):
        try:
            _renew_hold(table, version, owner, hold_ms)
        except StateMovedOnError as error:
            if find_table(instance, version) is None:
                continue
            raise LostTableError(
                f"version {version.number} of table {version.table!r} was collected: {error}"
            ) from error


def _renew_hold(table: OpenTable, version: TableVersion, owner: str, hold_ms: int) -> None:
    # Of the renewals in a third of the time, only the first writes.
    seconds, period_ms = hold_ms // 1000, hold_ms // 3
    try:
        extend_hold(table.state, version.hold, table.instance.clock(), seconds, period_ms)
    except StateMovedOnError:
        now_ms = table.instance.clock()
        number = version.number
        create_hold(table.state, version.hold, owner, number, now_ms, seconds, period_ms)


def release_holds(instance: Instance, versions: Iterable[TableVersion]) -> None:
    """Releases the holds of the versions. Never fails: a hold that remains expires."""
    for table, version in _active(instance, versions):
        release_hold(table.state, version.hold)


def release_owned(instance: Instance, versions: Iterable[TableVersion], owner: str) -> None:
    """Releases all holds of the owner, also those of processes that died, as `release_holds`."""
    for table, _ in _active(instance, versions):
        for hold in table.state.holds.all():
            if hold.owner == owner:
                release_hold(table.state, hold.id)


def _active(
    instance: Instance, versions: Iterable[TableVersion]
) -> Iterator[tuple[OpenTable, TableVersion]]:
    """Yields the tables that were not deleted."""
    for version in versions:
        if (table := find_table(instance, version)) is not None:
            yield table, version


def find_table(instance: Instance, version: TableVersion) -> OpenTable | None:
    """Returns the table of a version with the name that it had then; None if it was deleted."""
    try:
        ref = instance.tables.index.get(version.id)
    except NotFoundError:
        return None
    if ref.state is not TableState.ACTIVE:
        return None
    return OpenTable(instance, replace(ref, name=version.table))


def hold_minutes(instance: Instance) -> int:
    """Returns the time for which a hold outlives the processes of its stash."""
    return instance.properties().get(STASH_HOLD_MINUTES)


def _read_unchanged(tables: Sequence[OpenTable]) -> list[int]:
    def read_twice() -> list[int]:
        first = [_newest(table) for table in tables]
        if first != [_newest(table) for table in tables]:
            raise _ChangedError
        return first

    try:
        return retry(read_twice, on=_ChangedError, backoff=_ATTEMPTS)
    except _ChangedError:
        raise UnavailableError(
            f"cannot copy the tables at one moment: for {_ATTEMPTS.seconds_total:.0f} s, at least "
            f"one of {len(tables)} changed during each attempt (repeat, or copy fewer tables)"
        ) from None


def _exists(table: OpenTable) -> bool:
    try:
        table.check_active()
    except StateMovedOnError:
        return False
    return True


def _newest(table: OpenTable) -> int:
    with table.state.reading() as state:
        return int(state.number)


def _hold(table: OpenTable, number: int, owner: str) -> TableVersion:
    instance = table.instance
    piece_bytes = table.properties().get(STASH_PIECE_BYTES)
    sketches = instance.properties().get(SPLITTING_FILES_MAX)
    hold = new_transaction_id()
    seconds = hold_minutes(instance) * 60
    create_hold(table.state, hold, owner, number, instance.clock(), seconds)
    with table.state.reading(number) as state:
        ref, schema, time_ms = table.ref, state.schema, state.version_time_ms
    return TableVersion(ref.name, ref.id, number, time_ms, hold, schema, piece_bytes, sketches)
