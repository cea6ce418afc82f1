"""The change feed of a table, and readers that follow it.

The feed has the rows that ingests added between two versions. Each file of an ingest or an import
is read once; files that compactions write are not part of it. A *follower* keeps the files while
its reader is away, until an operator deletes it. Without one, a hold moves along with the reader:
it keeps the files while the reader runs and for the hold's time afterwards.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from sleeper.clock import Clock
from sleeper.errors import NotFoundError
from sleeper.files import DataFile
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, disjoint_regions
from sleeper.query.distributed.plan import Part, parts_of_leaves
from sleeper.query.distributed.read import Read, TableRead
from sleeper.query.hold import VersionHold
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query, check_query
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateFollower, check_follower_name
from sleeper.tables import TableId

# Limits how often a polling reader reads the state while nothing is new.
_SECONDS_BETWEEN_POLLS = 0.5


class FeedClaim(Protocol):
    """Keeps the changes after the version that a reader has reached."""

    def begin(self, version: int) -> int:
        """Returns the version from which a new reader starts, given the version it requests."""

    def keep(self, version: int) -> None:
        """Keeps the changes after the version. Cheap if they are kept already.

        StateMovedOnError or InvalidRequestError if they are gone.
        """

    def advance(self, version: int) -> None:
        """Records that the reader needs no changes up to the version any more."""

    def release(self) -> None:
        """Records that the reader stops."""


class FollowerClaim:
    """A named follower, created on first use, which keeps its reader's position."""

    def __init__(self, store: StateStore, name: str) -> None:
        check_follower_name(name)
        self._store = store
        self._name = name
        self._exists = False

    def begin(self, version: int) -> int:
        """Returns the follower's position if it exists: an earlier start may have failed late."""
        positions = [f.position for f in self._store.followers() if f.name == self._name]
        return positions[0] if positions else version

    def keep(self, version: int) -> None:
        if self._exists:
            return
        if all(f.name != self._name for f in self._store.followers()):
            self._store.commit_or_raise(CreateFollower(self._name, version))
        self._exists = True

    def advance(self, version: int) -> None:
        try:
            self._store.advance_follower(self._name, version)
        except NotFoundError:
            # An operator deleted it under a running reader, which creates it again.
            self._exists = False

    def release(self) -> None:
        """Does nothing: a follower outlives its readers."""


class HoldClaim:
    """A hold that is renewed in the background and moves along with its reader.

    Spark requests offsets only between micro-batches, so a timer renews the hold in a long one.
    A hold that `lingers` expires some time after its release, so that a stream that restarts soon
    can continue.
    """

    def __init__(
        self, store: StateStore, seconds: int, clock: Clock, owner: str, lingers: bool = True
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self._owner = owner
        self._lingers = lingers
        self._hold: VersionHold | None = None
        self._move_ms = 0

    def begin(self, version: int) -> int:
        return version

    def keep(self, version: int) -> None:
        """Moves the hold to the version, at most once in a third of the hold's time."""
        if self._hold is not None and self._clock() < self._move_ms:
            return
        check_feed_start(self._store, version)
        hold = VersionHold(self._store, version, self._seconds, self._clock, self._owner)
        hold.acquire()
        if self._hold is not None:
            self._hold.release()
        self._hold = hold
        self._move_ms = self._clock() + self._seconds * 1000 // 3

    def advance(self, version: int) -> None:
        """Does nothing: `keep` moves the hold."""

    def release(self) -> None:
        """Releases the hold, or lets it expire."""
        hold, self._hold = self._hold, None
        if hold is not None:
            (hold.stop_renewal if self._lingers else hold.release)()


class TableFollower:
    """A reader of a table's change feed, under a follower's name or an owner's hold."""

    def __init__(self, table: OpenTable, follower: str | None, owner: str) -> None:
        self._table = table
        self._claim: FeedClaim
        if follower is not None:
            self._claim = FollowerClaim(table.state, follower)
        else:
            seconds = table.instance.queries.engine().settings.hold_seconds
            self._claim = HoldClaim(table.state, seconds, table.instance.clock, owner)
        self._idle_since = -_SECONDS_BETWEEN_POLLS

    @property
    def table_id(self) -> TableId:
        """The table's id, which stays the same when the table is renamed."""
        return self._table.ref.id

    @property
    def newest(self) -> int:
        """The number of the table's newest transaction."""
        with self._table.state.reading() as state:
            return int(state.number)

    def last_removal(self, start: int) -> int | None:
        """Returns the newest transaction after `start` that deleted or replaced rows, if any."""
        with self._table.state.reading() as state:
            return state.changes.last_removal(start)

    def begin(self, start: int) -> int:
        """Returns the version to start from, given the version requested, and keeps it."""
        version = self._claim.begin(start)
        check_feed_start(self._table.state, version)
        self._claim.keep(version)
        return version

    def next_version(self, start: int, files_max: int | None, last: int | None) -> int:
        """Returns the version up to which to read, `start` if nothing is new.

        StateMovedOnError if the table was deleted.
        """
        self._claim.keep(start)
        if time.monotonic() - self._idle_since < _SECONDS_BETWEEN_POLLS:
            return start
        version = self._find_next(self._table.state, start, files_max, last)
        if version == start:
            self._idle_since = time.monotonic()
            # A deleted table never has changes, so a reader would wait forever.
            self._table.check_active()
        return version

    def _find_next(
        self, store: StateStore, start: int, files_max: int | None, last: int | None
    ) -> int:
        return next_version(store, start, files_max, last)

    def parts(
        self, start: int, end: int, query: Query, part_bytes: int
    ) -> list[tuple[TableRead, Part]]:
        """Plans a read of the changes after `start`, up to `end`, and returns its parts."""
        self._claim.keep(start)
        read, parts = plan_feed(self._table.state, start, end, query, part_bytes)
        return [(TableRead(self._table.ref, read), part) for part in parts]

    def advance(self, end: int) -> None:
        """Records that changes up to `end` are not read again."""
        self._claim.advance(end)

    def close(self) -> None:
        """Ends the reading; another reader may continue it."""
        self._claim.release()


# After this many transactions without a new file the feed advances, so that older versions can
# be collected.
_QUIET_TRANSACTIONS = 1000
_FILES_PER_PAGE = 10_000


def check_feed_start(store: StateStore, start: int) -> None:
    """InvalidRequestError if the feed after the version is incomplete, or the version is new.

    That of a snapshot table is always complete, because a version replaces all before it.
    """
    with store.reading() as state:
        state.check_changes_after(max(start, state.horizon) if state.is_snapshot_table else start)


def next_version(store: StateStore, start: int, files_max: int | None, last: int | None) -> int:
    """Returns the version up to which to read next, at most `last`; `start` if nothing is new.

    Takes about `files_max` files: the files of one transaction stay together.
    """
    with store.reading() as state:
        state.check_changes_after(start)
        newest: int = state.number if last is None else min(last, state.number)
        end = start
        while end < newest:
            page = state.files.ingested_after(end, files_max or _FILES_PER_PAGE)
            numbers = [number for number, _ in page if number <= newest]
            if numbers:
                end = numbers[-1]
            if not numbers or files_max is not None:
                break
    return next_quiet_version(start, newest) if end == start else end


def next_quiet_version(start: int, newest: int) -> int:
    """Returns `newest` if so many transactions changed nothing that the reader should advance."""
    return newest if newest - start >= _QUIET_TRANSACTIONS else start


def plan_feed(
    store: StateStore, start: int, end: int, query: Query, part_bytes: int
) -> tuple[Read, list[Part]]:
    """Plans a read of the files added after `start`, up to `end`, in parts of `part_bytes`.

    Only the query's regions and columns apply.
    """
    with store.reading() as state:
        state.check_changes_after(start)
        schema = state.schema
        check_query(query, schema)
        leaves = [LeafPlan((), (scan,)) for scan in _scans(state, start, end, query)]
    query = replace(query, raw=True)
    return Read(query, QueryPlan(schema, end, ()), 0), parts_of_leaves(leaves, part_bytes)


def _scans(state: TableState, start: int, end: int, query: Query) -> Iterator[FileScan]:
    regions = None if query.regions is None else disjoint_regions(query.regions)
    while start < end:
        page = state.files.ingested_after(start, _FILES_PER_PAGE)
        if not page:
            return
        for number, file in page:
            if number > end:
                return
            within = None if regions is None else _overlapping(regions, file)
            if within is None or within:
                yield FileScan(file, within)
        start = page[-1][0]


def _overlapping(regions: Sequence[Region], file: DataFile) -> tuple[Region, ...] | None:
    """Returns the regions that overlap the file; None if one contains the whole file."""
    bounds = file.smallest_key, file.largest_key
    if any(r.contains_bounds(*bounds) for r in regions):
        return None
    return tuple(r for r in regions if r.overlaps_bounds(*bounds))
