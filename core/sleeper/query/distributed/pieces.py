"""A query in pieces that other processes run, such as Spark's executors.

It is planned once, at one version and one time, under a hold. A *piece* is a leaf, or
several small ones in a row: all of it can be sent elsewhere, and reading it takes the
instance's data and no state. The pieces' rows together are those of the query, once each.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.merge.bound_iterator import TableIterators
from sleeper.errors import StateMovedOnError
from sleeper.query.distributed.shared_hold import SharedHold, take_shared_hold
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.interruption import TimeLimit
from sleeper.query.key_filters import narrowed
from sleeper.query.plan import LeafPlan, QueryPlan
from sleeper.query.request import Query
from sleeper.query.run import RESTARTS, plan_of_query, result_schema, rows_of, steps_of
from sleeper.retries import retry
from sleeper.storage.location import DataRoot


@dataclass(frozen=True, slots=True)
class QueryPiece:
    """Leaves to read one after another."""

    leaves: tuple[LeafPlan, ...]


@dataclass(frozen=True, slots=True)
class PiecedQuery:
    """What all pieces share. `plan` has no leaves; `hold` is None if there is nothing to read."""

    query: Query
    plan: QueryPlan
    now_ms: int
    hold: SharedHold | None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the pieces' rows."""
        return result_schema(self.plan.schema, self.query.columns)


def plan_pieces(
    query: Query, table: QueryTable, engine: QueryEngine, owner: str, bytes_per_piece: int
) -> tuple[PiecedQuery, list[QueryPiece]]:
    """Plans the query and holds its version. Leaves of less than the bytes go together.

    InvalidRequestError if the query does not fit the schema, or its version cannot be read.
    """

    def attempt() -> tuple[PiecedQuery, list[QueryPiece]]:
        plan = narrowed(
            plan_of_query(query, table),
            lambda file: engine.key_filters.get(table.root, file),
            lambda files: engine.key_filters.load(table.root, files),
        )
        now_ms = plan.time_ms if query.version is not None else max(engine.clock(), plan.time_ms)
        steps_of(plan, query, table.iterators, now_ms)  # refuses now what would fail everywhere
        shared = PiecedQuery(query, replace(plan, leaves=()), now_ms, None)
        if not plan.leaves:
            return shared, []
        seconds = engine.settings.hold_seconds
        hold = take_shared_hold(table.store, plan.version, seconds, engine.clock, owner)
        return replace(shared, hold=hold), _pieces(plan.leaves, bytes_per_piece)

    # A garbage collection between plan and hold makes the plan too old.
    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)


def read_piece(
    shared: PiecedQuery,
    piece: QueryPiece,
    root: DataRoot,
    iterators: TableIterators,
    engine: QueryEngine,
) -> Iterator[pa.RecordBatch]:
    """The piece's rows in key order, as batches of the query's schema."""
    steps = steps_of(shared.plan, shared.query, iterators, shared.now_ms)
    plan = replace(shared.plan, leaves=piece.leaves)
    limit = TimeLimit.from_now(engine.settings.seconds_max)
    yield from rows_of(plan, shared.query, root, engine, shared.schema, steps, limit)


def _pieces(leaves: Sequence[LeafPlan], bytes_per_piece: int) -> list[QueryPiece]:
    # A file that several leaves share is counted a part in each.
    sharing = Counter(scan.file.path for leaf in leaves for scan in leaf.scans)
    groups: list[list[LeafPlan]] = []
    room = 0.0
    for leaf in leaves:
        size = sum(scan.file.bytes / sharing[scan.file.path] for scan in leaf.scans)
        if not groups or size > room:
            groups.append([])
            room = bytes_per_piece
        groups[-1].append(leaf)
        room -= size
    return [QueryPiece(tuple(group)) for group in groups]
