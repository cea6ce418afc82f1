"""The change feed in parts that other processes read, such as Spark's executors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.query.changes.plan import PlannedChange, plan_step
from sleeper.query.changes.read import Change, read_change
from sleeper.query.distributed.follow import TableFollower, next_quiet_version
from sleeper.query.distributed.plan import group_small
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

    Each part has whole files. `next_version` takes at most a number of transactions.
    """

    def change_parts(
        self, start: int, end: int, schema: Schema, part_bytes: int
    ) -> list[ChangesPart]:
        """Plans the changes after `start`, up to `end`, in parts of about `part_bytes`.

        InvalidRequestError if the table has another schema by now.
        """
        self._claim.keep(start)
        pieces: list[PlannedChange] = []
        while start < end:
            with self._table.state.reading() as state:
                step = plan_step(state, start, end)
            if step.schema != schema:
                raise InvalidRequestError(
                    f"the schema of table {self._table.ref.name!r} has changed: restart the query, "
                    "which then has the new columns"
                )
            pieces += [piece for change in step.changes for piece in _divide(change)]
            start = step.end
        return [
            ChangesPart(schema, tuple(group)) for group in group_small(pieces, _bytes, part_bytes)
        ]

    def _find_next(
        self, store: StateStore, start: int, files_max: int | None, last: int | None
    ) -> int:
        with store.reading() as state:
            state.check_changes_after(start)
            newest = int(state.number) if last is None else min(last, int(state.number))
            found = state.changes.between(start, newest, files_max or _ALL)
        return found[-1].number if found else next_quiet_version(start, newest)


def read_changes_part(instance: Instance, part: ChangesPart) -> Iterator[Change]:
    """Yields the changes of the part. StateMovedOnError if a file was collected."""
    root, engine = instance.storage.root, instance.queries.engine()
    for planned in part.changes:
        yield from read_change(planned, part.schema, root, engine)


def _divide(change: PlannedChange) -> Iterator[PlannedChange]:
    """Yields the change in pieces: its regions and the mark of a replacement, and each leaf."""
    if change.regions or change.key_files or change.is_replacement:
        yield replace(change, leaves=())
    for leaf in change.leaves:
        yield replace(change, leaves=(leaf,), regions=(), key_files=(), is_replacement=False)


def _bytes(change: PlannedChange) -> float:
    files = [scan.file.bytes for leaf in change.leaves for scan in leaf.scans]
    return sum(files) + sum(file.bytes for file in change.key_files)
