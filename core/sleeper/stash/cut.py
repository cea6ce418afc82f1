"""The cut of a stash: the transaction number at which each table is copied, and holds on them.

A cut of several tables at one moment needs no clock. All newest numbers are read, and then read
again. If none has changed, every table had its number at any moment between the two readings.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from sleeper.errors import NotFoundError, StateMovedOnError, UnavailableError
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.hold import create_hold, release_hold
from sleeper.retries import Backoff, retry
from sleeper.stash.properties import STASH_HOLD_MINUTES, STASH_PIECE_BYTES
from sleeper.stash.record import Cut
from sleeper.statestore.transactions.transaction import new_transaction_id
from sleeper.tables import TableState

# A table moves on at each commit, so the waits stay short.
_ATTEMPTS = Backoff(seconds_first=0.001, seconds_max=0.05, seconds_total=30)
_HOLD_ATTEMPTS = Backoff(5, seconds_first=0.1)
_MINUTE_MS = 60_000


class LostTableError(StateMovedOnError):
    """A stash cannot be completed: a table that it needs was deleted, or files of its cut were.

    Or of its root at the destination, or another instance writes that root.
    """


class _ChangedError(Exception):
    """A table has changed between the two readings."""


def cut_newest(table: OpenTable, owner: str) -> Cut:
    """Returns the newest version of a table, which a hold keeps readable."""

    def acquire() -> Cut:
        return _hold(table, _newest(table), owner)

    return retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)


def cut_each(tables: Iterable[OpenTable], owner: str, may_vanish: bool) -> list[Cut]:
    """Returns the newest version of each table, which holds keep readable.

    If `may_vanish`, tables that are deleted meanwhile are left out.
    """
    with ExitStack() as attempt:
        cuts = []
        for table in tables:
            try:
                cut = cut_newest(table, owner)
            except (NotFoundError, StateMovedOnError):
                if not may_vanish or _exists(table):
                    raise
                continue
            attempt.callback(release_hold, table.state, cut.hold)
            cuts.append(cut)
        attempt.pop_all()
    return cuts


def cut_at_one_moment(tables: Sequence[OpenTable], owner: str) -> list[Cut]:
    """Returns the versions that the tables had at one moment, which holds keep readable.

    UnavailableError if the tables change so often that no moment is found.
    """

    def acquire() -> list[Cut]:
        with ExitStack() as attempt:
            cuts = []
            for table, version in zip(tables, _read_unchanged(tables), strict=True):
                cut = _hold(table, version, owner)
                attempt.callback(release_hold, table.state, cut.hold)
                cuts.append(cut)
            attempt.pop_all()
        return cuts

    return retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)


def keep_cuts(instance: Instance, cuts: Iterable[Cut], owner: str) -> None:
    """Renews the holds of the cuts, or takes them again.

    LostTableError if files of a version may have been deleted. Deleted tables are left out.
    """
    hold_ms = hold_minutes(instance) * _MINUTE_MS
    for cut in cuts:
        table = find_table(instance, cut)
        if table is None:
            continue
        try:
            # Of the renewals in a third of the time, only the first writes to the log.
            now_ms = instance.clock()
            store, seconds = table.state, hold_ms // 1000
            create_hold(store, cut.hold, owner, cut.version, now_ms, seconds, hold_ms // 3)
        except StateMovedOnError as error:
            if find_table(instance, cut) is None:
                continue
            raise LostTableError(
                f"version {cut.version} of table {cut.table!r} was collected: {error}"
            ) from error


def release_cuts(instance: Instance, cuts: Iterable[Cut]) -> None:
    """Releases the holds of the cuts. Never fails: a hold that remains expires."""
    for cut in cuts:
        table = find_table(instance, cut)
        if table is not None:
            release_hold(table.state, cut.hold)


def release_owned(instance: Instance, cuts: Iterable[Cut], owner: str) -> None:
    """Releases all holds of the owner, also those of processes that died, as `release_cuts`."""
    for cut in cuts:
        table = find_table(instance, cut)
        if table is not None:
            with table.state.reading() as state:
                owned = [hold.id for hold in state.collection.holds() if hold.owner == owner]
            for hold in owned:
                release_hold(table.state, hold)


def find_table(instance: Instance, cut: Cut) -> OpenTable | None:
    """Returns the table of a cut with the name that it had then; None if it was deleted."""
    try:
        ref = instance.tables.index.get(cut.id)
    except NotFoundError:
        return None
    if ref.state is not TableState.ACTIVE:
        return None
    return OpenTable(instance, replace(ref, name=cut.table))


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


def _hold(table: OpenTable, version: int, owner: str) -> Cut:
    instance = table.instance
    piece_bytes = table.properties().get(STASH_PIECE_BYTES)
    sketches = instance.properties().get(SPLITTING_FILES_MAX)
    hold = new_transaction_id()
    seconds = hold_minutes(instance) * 60
    create_hold(table.state, hold, owner, version, instance.clock(), seconds)
    with table.state.reading(version) as state:
        ref, schema, time_ms = table.ref, state.schema, state.version_time_ms
    return Cut(ref.name, ref.id, version, time_ms, hold, schema, piece_bytes, sketches)
