"""The change feed in parts that other processes read, such as Spark's executors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.changes.plan import PlannedChange, Step, find_changes, plan_step
from sleeper.query.changes.read import Change, read_change
from sleeper.query.distributed.follow import TableFollower, next_quiet_version
from sleeper.query.distributed.plan import group_small
from sleeper.query.distributed.read import divide_large
from sleeper.query.hold import VersionHold
from sleeper.query.plan import QueryPlan
from sleeper.schema.model import Schema
from sleeper.statestore.store import StateStore

_ALL = 2**62


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """Changes that one process reads, without access to the state. Their rows have the schema."""

    schema: Schema
    changes: tuple[PlannedChange, ...]


class ChangeFollower(TableFollower):
    """A reader of all changes of a table, whose parts may be read in any order.

    A large file is divided by its sketches. `next_version` takes at most a number of transactions.
    The versions of a snapshot table that are planned are held until the reader advances or plans
    again.
    """

    def __init__(self, table: OpenTable, follower: str | None, owner: str) -> None:
        super().__init__(table, follower, owner)
        self._holds: list[VersionHold] = []
        self._owner = owner
        self._sketched_files_max = table.instance.properties().get(SPLITTING_FILES_MAX)
        with table.state.reading() as state:
            self._is_snapshot_table = state.is_snapshot_table
        if self._is_snapshot_table and follower is None:
            self._claim = _NoClaim()

    def change_parts(
        self, start: int, end: int, schema: Schema, part_bytes: int
    ) -> list[ChangesPart]:
        """Plans the changes after `start`, up to `end`, in parts of about `part_bytes`.

        InvalidRequestError if the table has another schema by now.
        """
        self._claim.keep(start)
        self._release()
        pieces: list[PlannedChange] = []
        while start < end:
            with self._table.state.reading() as state:
                step = plan_step(state, start, end)
            if not self._hold(step):
                continue
            if step.schema != schema:
                raise InvalidRequestError(
                    f"the schema of table {self._table.ref.name!r} has changed: restart the query, "
                    "which then has the new columns"
                )
            for change in step.changes:
                pieces += self._divide(change, schema, part_bytes)
            start = step.end
        return [
            ChangesPart(schema, tuple(group)) for group in group_small(pieces, _bytes, part_bytes)
        ]

    def advance(self, end: int) -> None:
        super().advance(end)
        self._release()

    def close(self) -> None:
        super().close()
        self._release()

    def _divide(
        self, change: PlannedChange, schema: Schema, part_bytes: int
    ) -> Iterator[PlannedChange]:
        """Yields the change in pieces: its regions and the mark of a replacement, and its leaves.

        A leaf of more than `part_bytes` is several.
        """
        if change.regions or change.key_files or change.is_replacement:
            yield replace(change, leaves=())
        plan = QueryPlan(schema, change.number, change.leaves)
        root = self._table.instance.storage.root
        for leaf in divide_large(plan, root, part_bytes, self._sketched_files_max):
            yield replace(change, leaves=(leaf,), regions=(), key_files=(), is_replacement=False)

    def _hold(self, step: Step) -> bool:
        """Holds the step's versions of a snapshot table. False if one has expired since its plan.

        Other tables keep all changes by the claim.
        """
        for change in step.changes if self._is_snapshot_table else ():
            instance = self._table.instance
            seconds = instance.queries.engine().settings.hold_seconds
            hold = VersionHold(
                self._table.state, change.number, seconds, instance.clock, self._owner
            )
            try:
                hold.acquire()
            except StateMovedOnError:
                with self._table.state.reading() as state:
                    if find_changes(state, change.number - 1, change.number, 1):
                        raise
                return False
            self._holds.append(hold)
        return True

    def _release(self) -> None:
        for hold in self._holds:
            hold.release()
        self._holds.clear()

    def _find_next(
        self, store: StateStore, start: int, files_max: int | None, last: int | None
    ) -> int:
        with store.reading() as state:
            newest = int(state.number) if last is None else min(last, int(state.number))
            result = find_changes(state, start, newest, files_max or _ALL)
        return result[-1].number if result else next_quiet_version(start, newest)


class _NoClaim:
    """The claim of a reader of a snapshot table, which skips versions that have expired."""

    def begin(self, version: int) -> int:
        return version

    def keep(self, version: int) -> None:
        """Does nothing."""

    def advance(self, version: int) -> None:
        """Does nothing."""

    def release(self) -> None:
        """Does nothing."""


def read_changes_part(instance: Instance, part: ChangesPart) -> Iterator[Change]:
    """Yields the changes of the part. StateMovedOnError if a file was collected."""
    root, engine = instance.storage.root, instance.queries.engine()
    for planned in part.changes:
        yield from read_change(planned, part.schema, root, engine)


def _bytes(change: PlannedChange) -> float:
    files = [scan.file.bytes for leaf in change.leaves for scan in leaf.scans]
    return sum(files) + sum(file.bytes for file in change.key_files)
