"""Plans of the change feed: the files to read for each transaction, from the state alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sleeper.files import DataFile, KeyFile, bounds_region
from sleeper.partitions.region import Region
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import group_in_key_order, plan_query
from sleeper.query.request import Query
from sleeper.schema.model import Schema
from sleeper.statestore.reading.change_queries import LoggedChange
from sleeper.statestore.reading.table_state import TableState

# Planned at once. Bounds the memory for plans, and the time until a state is read again.
_CHANGES_PER_STEP = 100


class Operation(StrEnum):
    """The kind of a change."""

    INSERT = "insert"
    UPSERT = "upsert"
    DELETE = "delete"
    DELETE_REGION = "delete_region"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The changes of one transaction: rows, regions and keys, or a replacement by the rows.

    The leaves are to be read one after another; each is a group of files to merge.
    """

    number: int
    time_ms: int
    job: str | None
    leaves: tuple[LeafPlan, ...] = ()
    regions: tuple[Region, ...] = ()
    key_files: tuple[KeyFile, ...] = ()
    is_replacement: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The changes after one number, up to `end`."""

    schema: Schema
    end: int
    changes: tuple[PlannedChange, ...]


def plan_step(state: TableState, start: int, last: int | None = None) -> Step:
    """Returns the next changes after `start`, up to `last` or the newest transaction.

    InvalidRequestError if some of them are no longer kept. Those of a snapshot table are the
    versions that have not expired, so that a late reader skips the others.
    """
    newest = state.number if last is None else min(last, state.number)
    logged = find_changes(state, start, newest, _CHANGES_PER_STEP)
    is_whole = len(logged) < _CHANGES_PER_STEP
    for index, each in enumerate(logged):
        if each.is_replacement:
            # Its plan is that of the whole table, so that only one is kept.
            is_whole = is_whole and index == len(logged) - 1
            logged = logged[: index + 1]
            break
    end = max(start, newest) if is_whole else logged[-1].number
    changes = tuple(_plan_change(state, each) for each in logged)
    return Step(state.schema, end, changes)


def find_changes(state: TableState, start: int, end: int, limit: int) -> list[LoggedChange]:
    """Returns the first transactions after `start`, up to `end`, that changed rows, in order.

    InvalidRequestError if some of them are no longer kept.
    """
    if state.is_snapshot_table:
        return state.changes.between_versions(start, end, limit)
    state.check_changes_after(start)
    return state.changes.between(start, end, limit)


def _plan_change(state: TableState, logged: LoggedChange) -> PlannedChange:
    change = PlannedChange(logged.number, logged.time_ms, logged.job)
    if logged.is_replacement:
        plan = plan_query(Query(raw=True), state.schema, state.at(logged.number))
        return replace(change, leaves=plan.leaves, is_replacement=True)
    regions, key_files = state.changes.deletes(logged.number)
    if regions or key_files:
        return replace(change, regions=tuple(regions), key_files=tuple(key_files))
    files = state.changes.files(logged.number)
    return replace(change, leaves=tuple(_group_files(state.schema, files)))


def _group_files(schema: Schema, files: Sequence[DataFile]) -> Iterator[LeafPlan]:
    """Yields groups of files to merge. The keys of a group precede those of later groups."""
    placed = [(bounds_region(schema, file), FileScan(file, None)) for file in files]
    for group in group_in_key_order(schema, placed):
        yield LeafPlan((), tuple(group))
