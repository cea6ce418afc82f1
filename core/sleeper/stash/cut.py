"""The cut of a stash: the transaction number at which each table is copied, and holds on them.

A cut of several tables at one moment needs no clock. All newest numbers are read, and then read
again. If none has changed, every table had its number at any moment between the two readings.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sleeper.errors import StateMovedOnError, UnavailableError
from sleeper.instance import OpenTable
from sleeper.properties.instance import QUERY_HOLD_SECONDS
from sleeper.query.hold import VersionHold
from sleeper.retries import Backoff, retry

# A table moves on at each commit, so the waits stay short.
_ATTEMPTS = Backoff(seconds_first=0.001, seconds_max=0.05, seconds_total=30)
_HOLD_ATTEMPTS = Backoff(5, seconds_first=0.1)


@dataclass(frozen=True, slots=True)
class TableCut:
    """A table and the transaction number at which it is copied."""

    table: OpenTable
    version: int


class _ChangedError(Exception):
    """A table has changed between the two readings."""


@contextmanager
def hold_newest(table: OpenTable, owner: str) -> Iterator[TableCut]:
    """Yields the newest version of a table, which a hold keeps readable until the end."""

    def acquire() -> tuple[TableCut, VersionHold]:
        cut = TableCut(table, _newest(table))
        return cut, _hold(cut, owner)

    cut, hold = retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)
    try:
        yield cut
    finally:
        hold.release()


@contextmanager
def hold_at_one_moment(tables: Sequence[OpenTable], owner: str) -> Iterator[list[TableCut]]:
    """Yields the versions that the tables had at one moment. Holds keep them until the end.

    UnavailableError if the tables change so often that no moment is found.
    """
    with ExitStack() as holds:

        def acquire() -> list[TableCut]:
            with ExitStack() as attempt:
                cuts = _read_unchanged(tables)
                for cut in cuts:
                    attempt.callback(_hold(cut, owner).release)
                holds.push(attempt.pop_all())
            return cuts

        yield retry(acquire, on=StateMovedOnError, backoff=_HOLD_ATTEMPTS)


def _read_unchanged(tables: Sequence[OpenTable]) -> list[TableCut]:
    def read_twice() -> list[TableCut]:
        first = [_newest(table) for table in tables]
        if first != [_newest(table) for table in tables]:
            raise _ChangedError
        return [TableCut(*each) for each in zip(tables, first, strict=True)]

    try:
        return retry(read_twice, on=_ChangedError, backoff=_ATTEMPTS)
    except _ChangedError:
        raise UnavailableError(
            f"cannot copy the tables at one moment: for {_ATTEMPTS.seconds_total:.0f} s, at least "
            f"one of {len(tables)} changed during each attempt (repeat, or copy fewer tables)"
        ) from None


def _newest(table: OpenTable) -> int:
    with table.state.reading() as state:
        return int(state.number)


def _hold(cut: TableCut, owner: str) -> VersionHold:
    instance = cut.table.instance
    seconds = instance.properties().get(QUERY_HOLD_SECONDS)
    hold = VersionHold(cut.table.state, cut.version, seconds, instance.clock, owner)
    hold.acquire()
    return hold
