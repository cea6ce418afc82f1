"""A reader of the change feed, which may follow new transactions and keep a follower's position."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.query.changes.plan import PlannedChange, Step, find_changes, plan_step
from sleeper.query.changes.read import Change, read_change
from sleeper.query.distributed.follow import FollowerClaim, HoldClaim
from sleeper.query.hold import VersionHold
from sleeper.query.result import TimeLimit
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.holds import check_follower_name
from sleeper.statestore.version import PointInTime

_SECONDS_BETWEEN_POLLS = 1.0
# Feeds of few rows, as many as a batch, are read at once.
_SMALL_ROWS = 8_192
_SMALL_FILES = 32
_SMALL_BYTES = 8 * 1024**2
# A reader that dies repeats at most so many rows, or those of one transaction if it has more.
_ROWS_PER_COMMIT = 100_000


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """The part of a feed to read.

    It begins after the last transaction at or before the time `since`, or with the transaction
    `first`, by default the table's first one. It ends with the transaction `last`, by default the
    newest at the start. `follow` waits for new transactions, until rows have a later schema.
    `follower` is a name whose position an earlier read recorded; only a new name begins at the
    requested start.
    """

    since: PointInTime | None = None
    first: int | None = None
    last: int | None = None
    follow: bool = False
    follower: str | None = None


class ChangeReader:
    """Yields the changes of a table in order, once. A context manager.

    `start` is the number after which the feed begins; `is_new` means that the follower was created
    there. `position` is the last number whose changes were all taken: the consumer requested the
    next one. `commit` records it for the follower. With `commits` the reader does so by itself.
    `limit` is the time by which reading must end.
    """

    def __init__(
        self,
        table: OpenTable,
        request: ChangesRequest,
        commits: bool = True,
        limit: TimeLimit | None = None,
    ) -> None:
        self._table = table
        self._limit = limit or TimeLimit()
        self._follower = request.follower
        self._commits = commits
        self._stop = threading.Event()
        positions = {}
        if request.follower is not None:
            check_follower_name(request.follower)
            positions = {f.name: f.position for f in table.state.followers()}
        with table.state.reading() as state:
            self.schema: Schema = state.schema
            self._is_snapshot_table = state.is_snapshot_table
            newest = int(state.number)
        self._last = _find_last(request, newest)
        self.is_new = request.follower is not None and request.follower not in positions
        result = positions.get(request.follower or "")
        self.start = self._find_start(request) if result is None else result
        self._check_start(self.start)
        self._claim: FollowerClaim | None = None
        self._hold: HoldClaim | None = None
        if request.follower is not None:
            self._claim = FollowerClaim(table.state, request.follower)
            self._claim.keep(self.start)
        elif not self._is_snapshot_table:
            instance, owner = table.instance, f"changes of {table.ref.name}"
            seconds = instance.queries.engine().settings.hold_seconds
            self._hold = HoldClaim(table.state, seconds, instance.clock, owner, lingers=False)
        self.position = self._committed = self.start
        self._changes = self._read()

    def __iter__(self) -> Iterator[Change]:
        return self._changes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading, in the thread that reads. Idempotent."""
        self._changes.close()

    def stop(self) -> None:
        """Ends a reader that follows, from another thread: it takes no further transactions."""
        self._stop.set()

    def commit(self) -> None:
        """Records for the follower that the changes up to `position` were taken."""
        if self._claim is not None and self.position > self._committed:
            self._claim.advance(self.position)
            self._committed = self.position

    def _find_start(self, request: ChangesRequest) -> int:
        if request.since is not None:
            start = self._number_at(request.since)
        else:
            start = max((request.first or 1) - 1, 0)
        if request.last is not None and start > request.last:
            raise InvalidRequestError(
                f"the changes end with transaction {request.last}, before their start (expected "
                f"transaction {start + 1} or a later one)"
            )
        return start

    def _number_at(self, since: PointInTime) -> int:
        with self._table.state.reading() as state:
            number = state.last_number_at(since.time_ms)
            if number is None and state.horizon > 0 and not self._is_snapshot_table:
                raise InvalidRequestError(
                    f"changes since {since.text} are no longer complete: changes are kept from "
                    f"transaction {state.horizon + 1} on"
                )
        return number or 0

    def _check_start(self, start: int) -> None:
        """Raises InvalidRequestError if changes after the number are gone, or if it is new."""
        with self._table.state.reading() as state:
            horizon, newest = state.horizon, state.number
            is_kept = self._is_snapshot_table or state.keeps_changes_after(start)
        if start > newest:
            raise InvalidRequestError(
                f"transaction {start + 1} does not exist yet: the newest is {newest}"
            )
        if is_kept:
            return
        kept = f"changes are kept from transaction {horizon + 1} on"
        if self._follower is None or self.is_new:
            raise InvalidRequestError(
                f"changes of transaction {start + 1} are no longer kept: {kept}"
            )
        raise InvalidRequestError(
            f"follower {self._follower!r} has read up to transaction {start} and is past the "
            f"table's retention: {kept}, so it lacks transactions {start + 1} to {horizon}. Copy "
            f"the rows as of version {horizon}, delete the follower and create it with start "
            f"{horizon}"
        )

    def _read(self) -> Generator[Change, None, None]:
        try:
            yield from self._read_steps()
        finally:
            if self._hold is not None:
                self._hold.release()

    def _read_steps(self) -> Iterator[Change]:
        while not self._stop.is_set() and self.position != self._last:
            step = self._plan_step()
            if step.changes:
                yield from self._read_step(step)
            self.position = step.end
            if self._commits:
                self.commit()
            if not step.changes and self.position != self._last:
                # A deleted table never has changes, so a reader would wait forever.
                self._table.check_active()
                self._stop.wait(_SECONDS_BETWEEN_POLLS)

    def _plan_step(self) -> Step:
        with self._table.state.reading() as state:
            if self._is_snapshot_table or state.keeps_changes_after(self.position):
                return plan_step(state, self.position, self._last)
        self._check_start(self.position)
        raise AssertionError("unreachable: the horizon never falls")

    def _read_step(self, step: Step) -> Iterator[Change]:
        instance = self._table.instance
        root, engine = instance.storage.root, instance.queries.engine()
        rows = 0
        reads = [
            self._checked(read_change(planned, self.schema, root, engine, self._limit))
            for planned in step.changes
        ]
        if self._hold is not None:
            if step.end == self._last and self._is_small(step):
                # Nothing is handed out before all is read, so it needs no hold.
                reads = [iter(list(read)) for read in reads]
            else:
                self._keep(self._hold)
        for planned, read in zip(step.changes, reads, strict=True):
            self._check_schema(planned)
            self._limit.check()
            with self._holding(planned.number) as is_readable:
                for change in read if is_readable else ():
                    yield change
                    rows += change.rows.num_rows
            self.position = planned.number
            if self._commits and rows >= _ROWS_PER_COMMIT:
                self.commit()
                rows = 0

    def _is_small(self, step: Step) -> bool:
        """Returns whether all changes of the step can be read at once."""
        scans = [scan for change in step.changes for leaf in change.leaves for scan in leaf.scans]
        keys = [file for change in step.changes for file in change.key_files]
        rows = sum(scan.file.rows for scan in scans) + sum(file.keys for file in keys)
        size = sum(scan.file.bytes for scan in scans) + sum(file.bytes for file in keys)
        return (
            len(scans) + len(keys) <= _SMALL_FILES
            and rows <= _SMALL_ROWS
            and size <= _SMALL_BYTES
            and not any(self._later_schemas(change) for change in step.changes)
        )

    def _keep(self, hold: HoldClaim) -> None:
        """Holds the changes from the position on."""
        try:
            hold.keep(self.position)
        except StateMovedOnError:
            self._check_start(self.position)
            raise

    def _check_schema(self, planned: PlannedChange) -> None:
        """Checks that the rows have no later schema than the stream."""
        later = self._later_schemas(planned)
        if later:
            raise StateMovedOnError(
                f"table {self._table.ref.name!r}: transaction {max(later)} changed the schema "
                f"(expected that of transaction {self.schema.version}): read the changes from "
                f"transaction {planned.number} on again"
            )

    def _later_schemas(self, planned: PlannedChange) -> set[int]:
        versions = {scan.file.schema_version for leaf in planned.leaves for scan in leaf.scans}
        return versions - {each.version for each in (self.schema, *self.schema.earlier)}

    def _checked(self, changes: Iterator[Change]) -> Iterator[Change]:
        """Yields the changes; explains a file that is missing because it was collected."""
        try:
            yield from changes
        except StateMovedOnError:
            self._check_start(self.position)
            raise

    @contextmanager
    def _holding(self, number: int) -> Iterator[bool]:
        """Holds a version of a snapshot table. Yields False if it has expired since its plan.

        Each version needs its own hold, from the start: without the end of a replacement, a
        consumer would have a part of the rows.
        """
        if not self._is_snapshot_table:
            yield True
            return
        hold = self._make_hold(number)
        try:
            hold.acquire()
        except StateMovedOnError:
            with self._table.state.reading() as state:
                if find_changes(state, number - 1, number, 1):
                    raise
            yield False
            return
        try:
            yield True
        finally:
            hold.release()

    def _make_hold(self, number: int) -> VersionHold:
        instance, owner = self._table.instance, f"changes of {self._table.ref.name}"
        seconds = instance.queries.engine().settings.hold_seconds
        return VersionHold(self._table.state, number, seconds, instance.clock, owner)


def _find_last(request: ChangesRequest, newest: int) -> int | None:
    if request.follow:
        return request.last
    if request.last is not None and request.last > newest:
        raise InvalidRequestError(
            f"transaction {request.last} does not exist yet: the newest is {newest}"
        )
    return newest if request.last is None else request.last
