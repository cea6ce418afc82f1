"""Reads of a table that other processes execute, such as Spark's executors.

A *read* is planned once, at one version and one time, under a shared hold, and divided into
*parts*. A process needs the read, one part and the instance's data files, but no table state.
The rows of all parts are the rows of the query, each once.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.merge.steps import TableIterators
from sleeper.errors import StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.distributed.plan import Part, divide_leaves, parts_of_leaves
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import (
    HoldRenewal,
    SharedHold,
    take_shared_hold,
)
from sleeper.query.leaf_plan import LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import (
    RESTARTS,
    make_steps,
    plan_with_filters,
    query_time,
    read_rows,
    result_schema,
)
from sleeper.query.service import make_query_table, table_iterators
from sleeper.retries import retry
from sleeper.storage.location import DataRoot
from sleeper.tables import TableRef

# Each part of a leaf opens all of its files, so smaller parts cost more than they gain.
_DIVIDED_BYTES_MIN = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class Read:
    """The properties that all parts of a read share.

    `plan` has no leaves. `hold` is None if there is nothing to read, or if the reader of a
    change feed holds its version.
    """

    query: Query
    plan: QueryPlan
    now_ms: int
    hold: SharedHold | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return result_schema(self.plan.schema, self.query.columns)


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read with the table that it reads."""

    ref: TableRef
    read: Read


def plan_table_read(
    table: OpenTable, query: Query, owner: str, part_bytes: int
) -> tuple[TableRead, list[Part]]:
    """Plans the query at its version, or at the newest version, and holds it for the owner."""
    engine = table.instance.queries.engine()
    files_max = table.instance.properties().get(SPLITTING_FILES_MAX)
    read, parts = plan_read(query, make_query_table(table), engine, owner, part_bytes, files_max)
    return TableRead(table.ref, read), parts


def read_table_part(instance: Instance, read: TableRead, part: Part) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the part, and renews the read's hold.

    NotFoundError if the table has been deleted.
    """
    table = OpenTable(instance, read.ref)
    root, engine = instance.storage.root, instance.queries.engine()
    with ExitStack() as stack:
        try:
            hold = read.read.hold
            if hold is not None:
                stack.enter_context(HoldRenewal(hold, lambda: table.state, instance.clock))
            yield from read_part(read.read, part, root, table_iterators(table), engine)
        except StateMovedOnError:
            table.check_active()
            raise


def plan_read(
    query: Query,
    table: QueryTable,
    engine: QueryEngine,
    owner: str,
    part_bytes: int,
    sketched_files_max: int = 50,
) -> tuple[Read, list[Part]]:
    """Plans the query, holds its version, and makes parts of about `part_bytes`.

    InvalidRequestError if the query does not fit the schema, or its version cannot be read.
    """

    def attempt() -> tuple[Read, list[Part]]:
        plan = plan_with_filters(query, table, engine)
        now_ms = query_time(plan, query, engine)
        # Raises here what would otherwise fail in every process.
        make_steps(plan, query, table.iterators, now_ms)
        hold = None
        if plan.leaves:
            seconds = engine.settings.hold_seconds
            hold = take_shared_hold(table.store, plan.version, seconds, engine.clock, owner)
        read = Read(query, replace(plan, leaves=()), now_ms, hold)
        return read, divide_plan(plan, table.root, part_bytes, sketched_files_max)

    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)


def divide_plan(
    plan: QueryPlan, root: DataRoot, part_bytes: int, sketched_files_max: int
) -> list[Part]:
    """Returns the leaves of the plan in parts of about `part_bytes`: small leaves are grouped."""
    leaves = divide_large(plan, root, part_bytes, sketched_files_max)
    return parts_of_leaves(leaves, part_bytes)


def divide_large(
    plan: QueryPlan, root: DataRoot, part_bytes: int, sketched_files_max: int
) -> list[LeafPlan]:
    """Returns the leaves, of which those larger than `part_bytes` are divided.

    The sketches of their largest files are read. StateMovedOnError if a file is gone.
    """
    return divide_leaves(plan, root, sketched_files_max, max(part_bytes, _DIVIDED_BYTES_MIN))


def read_part(
    read: Read, part: Part, root: DataRoot, iterators: TableIterators, engine: QueryEngine
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the part in key order, as batches of the read's schema."""
    steps = make_steps(read.plan, read.query, iterators, read.now_ms)
    plan = replace(read.plan, leaves=part.leaves)
    limit = TimeLimit.from_now(engine.settings.seconds_max)
    yield from read_rows(plan, read.query, root, engine, read.schema, steps, limit)
