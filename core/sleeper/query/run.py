"""Runs queries by key: plans, merges leaf after leaf, hands out rows as they come."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.bound_iterator import BoundIterator, TableIterators
from sleeper.datafiles.merge.plan import MergeInput, MergeRequest, merge
from sleeper.datafiles.merge.processing import ProcessingStep
from sleeper.datafiles.remote.extracts import Extract
from sleeper.datafiles.verification import find_damage
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files.data_file import DataFile
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.processing.restriction import NO_RESTRICTION, Restriction, visible_columns
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.interruption import TimeLimit
from sleeper.query.key_filters import prune_plan
from sleeper.query.plan import LeafPlan, QueryPlan, plan_query
from sleeper.query.request import Query, check_query
from sleeper.query.result import QueryResult, prepend_batch
from sleeper.query.size import check_size, total_bytes
from sleeper.retries import Backoff, retry
from sleeper.schema.json import schema_from_json
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

RESTARTS = Backoff(retries=4)
"""Restarts of a query whose files were collected before it could read them."""

parse_schema = lru_cache(maxsize=256)(schema_from_json)


def run_query(
    query: Query,
    table: QueryTable,
    engine: QueryEngine,
    limit: TimeLimit | None = None,
    held: bool = False,
) -> QueryResult:
    """The query's rows, of the table's types, in the columns asked for.

    They are in key order: row keys, then sort keys. The first batch is ready when this
    returns. A file that is gone until then makes the query start again on the newest state;
    for an old version that means that it is below the horizon, which is refused. Without a
    limit the engine's settings have one. `held`: whoever asks holds the version.

    InvalidRequestError if the query does not fit the schema, or its version cannot be read.
    """
    try:
        return retry(
            lambda: _start(query, table, engine, limit, held),
            on=StateMovedOnError,
            backoff=RESTARTS,
            on_retry=lambda error, _: logger.info(
                "query restarts: %s", error, extra={"table": table.name}
            ),
        )
    except StateMovedOnError as error:
        # Collection is not that frequent, so the file is missing or damaged.
        plan = plan_table_query(query, table)
        raise _damage(_files_of(plan), plan.schema, table.root, engine) or error from error


def plan_table_query(query: Query, table: QueryTable) -> QueryPlan:
    """Which files may hold rows of the query at its version, by what the state knows of them."""
    with table.store.reading(query.version) as state:
        schema = parse_schema(state.schema_json)
        check_query(query, schema)
        return plan_query(query, schema, state)


def _start(
    query: Query, table: QueryTable, engine: QueryEngine, limit: TimeLimit | None, held: bool
) -> QueryResult:
    plan = prune_plan(
        plan_table_query(query, table),
        lambda file: engine.key_filters.get(table.root, file),
        lambda files: engine.key_filters.load(table.root, files),
    )
    check_size(total_bytes(_files_of(plan)), engine.settings.bytes_max)
    columns = visible_columns(table.restriction, plan.schema, query.columns)
    query = replace(query, columns=columns)
    seconds = engine.settings.hold_seconds
    hold = VersionHold(table.store, plan.version, seconds, engine.clock, f"query {table.name}")
    target = result_schema(plan.schema, query.columns)
    now_ms = _now_of(plan, query, engine)
    steps = make_steps(plan, query, table.iterators, now_ms, table.restriction)
    holds = () if held else (hold,)
    try:
        if len(plan.leaves) > 1:
            for each in holds:
                each.take()
        limit = limit or TimeLimit.from_now(engine.settings.seconds_max)
        rows = read_rows(plan, query, table.root, engine, target, steps, limit)
        first = next(rows, None)
    except BaseException:
        hold.release()
        raise
    batches = prepend_batch(first, rows)
    return QueryResult(target, batches, holds, engine.settings.rows_max)


def result_schema(schema: Schema, columns: tuple[str, ...] | None) -> pa.Schema:
    """The Arrow schema of the columns, None for all."""
    whole = arrow_schema(schema)
    return whole if columns is None else pa.schema([whole.field(name) for name in columns])


def make_steps(
    plan: QueryPlan,
    query: Query,
    iterators: TableIterators,
    now_ms: int,
    restriction: Restriction = NO_RESTRICTION,
) -> tuple[ProcessingStep, ...]:
    """The table's processing, what its caller may see of that, then the query's own."""
    tables = NO_PROCESSING if query.raw else plan.processing
    forced = Processing(iterator=restriction.iterator)
    steps = [ProcessingStep(tables, now_ms, iterators.bind(tables.iterator))]
    for processing in (forced, query.processing):
        iterator = iterators.bind(processing.iterator)
        if iterator is not None:
            iterator.check(plan.schema)
        if processing is query.processing:
            _check_sight(query, restriction, plan.schema, iterator)
        steps.append(ProcessingStep(processing, now_ms, iterator))
    return tuple(step for step in steps if not step.processing.keeps_rows)


def _check_sight(
    query: Query, restriction: Restriction, schema: Schema, iterator: BoundIterator | None
) -> None:
    """InvalidRequestError if what the query asks for looks at fields its caller may not see."""
    if restriction.value_fields is None:
        return
    looked_at = [age_off.field for age_off in query.processing.filters]
    if iterator is not None:
        needed = iterator.required_fields(schema)
        looked_at += [f.name for f in schema.fields] if needed is None else needed
    visible_columns(restriction, schema, tuple(looked_at))


def _now_of(plan: QueryPlan, query: Query, engine: QueryEngine) -> int:
    """When it is for the filters of a query; for one of an old version, the version's time."""
    if query.now_ms is not None:
        return query.now_ms
    return plan.time_ms if query.version is not None else max(engine.clock(), plan.time_ms)


def read_rows(
    plan: QueryPlan,
    query: Query,
    root: DataRoot,
    engine: QueryEngine,
    target: pa.Schema,
    steps: tuple[ProcessingStep, ...],
    time_limit: TimeLimit,
) -> Iterator[pa.RecordBatch]:
    """The rows of the plan after the steps, as batches of the target schema, leaf after leaf."""
    left = query.limit
    wanted = [[(scan.file, scan.regions) for scan in leaf.scans] for leaf in plan.leaves]
    # A limit may be reached before the leaves whose rows would be fetched ahead.
    ahead = {} if left is None else {"ahead": 0}
    extracts = engine.extractor.extract_leaves(root, plan.schema, wanted, **ahead)
    with contextlib.closing(extracts):
        for leaf in plan.leaves:
            if left == 0:
                return
            try:
                extracted = next(extracts)
                reads_all = query.limit is None and query.columns is None
                _verify(leaf, root, engine, extracted, reads_all, time_limit)
                inputs = _inputs(leaf, root, extracted)
                request = MergeRequest(plan.schema, inputs, query.columns, left, steps)
                for batch in merge(request, engine.settings.engine, engine.session):
                    time_limit.check()
                    if batch.num_rows:
                        if left is not None:
                            left -= batch.num_rows
                        yield batch.cast(target)
            except DataError as error:
                files = [scan.file for scan in leaf.scans]
                raise _damage(files, plan.schema, root, engine) or error from error


def _files_of(plan: QueryPlan) -> list[DataFile]:
    return [scan.file for leaf in plan.leaves for scan in leaf.scans]


def _damage(
    files: Sequence[DataFile], schema: Schema, root: DataRoot, engine: QueryEngine
) -> DataError | None:
    return find_damage(schema, files, root, engine.settings.engine)


def _verify(
    leaf: LeafPlan,
    root: DataRoot,
    engine: QueryEngine,
    extracts: Mapping[str, Extract],
    reads_all: bool,
    time_limit: TimeLimit,
) -> None:
    """Holds the leaf's files against their checksums before a row is used, if queries do so.

    They always do of local files of which every row and column is read: it takes 3 % of the time.
    """
    for scan in leaf.scans:
        extract = extracts.get(scan.file.path)
        is_cheap = reads_all and scan.regions is None and not root.buckets
        is_wanted = engine.settings.verifies_checksums or is_cheap
        if is_wanted and (extract is None or not extract.is_verified):
            time_limit.check()
            engine.verified.verify(root, scan.file.path)


def _inputs(
    leaf: LeafPlan, root: DataRoot, extracts: Mapping[str, Extract]
) -> tuple[MergeInput, ...]:
    inputs = []
    for scan in leaf.scans:
        extract = extracts.get(scan.file.path)
        if extract is None:
            url = root.url_of(scan.file.path)
            inputs.append(MergeInput(url, scan.regions, scan.file.bytes))
        else:
            inputs.append(MergeInput(str(extract.path), scan.regions, extract.bytes))
    return tuple(inputs)
