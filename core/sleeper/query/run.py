"""Queries by key: plans them, merges leaf after leaf, and streams the rows."""

import contextlib
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.deletes import DeletedRows, open_deleted
from sleeper.datafiles.merge.request import MergeInput, MergeRequest, Stored
from sleeper.datafiles.merge.rows import merge_rows
from sleeper.datafiles.merge.steps import BoundIterator, ProcessingStep, TableIterators
from sleeper.datafiles.remote.extracts import Extract
from sleeper.errors import DataError, StateMovedOnError
from sleeper.partitions.region import Region, key_of_region
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.processing.restriction import NO_RESTRICTION, Restriction, visible_columns
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.key_filters import GetFilter, LoadFilters, prune_key, prune_plan
from sleeper.query.leaf_plan import LeafPlan, join_neighbours
from sleeper.query.newest_versions import CachedVersion
from sleeper.query.plan import (
    QueryPlan,
    check_has_rows,
    check_size,
    cut_leaves,
    plan_key,
    plan_query,
    plan_selected,
    total_bytes,
)
from sleeper.query.request import Query, check_query, has_few_keys
from sleeper.query.result import QueryResult, TimeLimit, prepend_batch
from sleeper.retries import Backoff, retry
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot
from sleeper.tracing import span

logger = logging.getLogger(__name__)

RESTARTS = Backoff(retries=4)
"""Restarts of a query whose files were collected before it could read them."""

_BATCH_ROWS = 8_192

Extracts = Mapping[str, Extract]
"""Extracts by data file."""


def run_query(
    query: Query,
    table: QueryTable,
    engine: QueryEngine,
    limit: TimeLimit | None = None,
    is_held: bool = False,
    newest: CachedVersion | None = None,
) -> QueryResult:
    """Returns the rows of a query, in key order: row keys, then sort keys.

    The first batch is read before this returns. If garbage collection deletes a file before that,
    the query restarts on the newest state. `limit` is by default that of the engine's settings.
    `is_held` means that the caller holds the version. `newest` is the newest version if the caller
    has just read its number.

    Raises `InvalidRequestError` if the query does not fit the schema, or its version cannot be
    read.
    """

    def start() -> QueryResult:
        nonlocal newest
        cached, newest = newest, None
        return _start(query, table, engine, limit, is_held, cached)

    with span("query", table.name) as traced:
        try:
            result = retry(
                start,
                on=StateMovedOnError,
                backoff=RESTARTS,
                on_retry=lambda error, _: logger.info(
                    "query restarts: %s", error, extra={"table": table.name}
                ),
            )
        except StateMovedOnError as error:
            # Collection is not that frequent, so the file is missing or damaged.
            plan = plan_table_query(query, table)
            raise engine.find_damage(plan.schema, plan.files, table.root) or error from error
        return result.keep_span(traced)


def plan_table_query(query: Query, table: QueryTable) -> QueryPlan:
    """Returns the plan of a query at its version, from the state alone."""
    with table.store.reading(query.version) as state:
        check_has_rows(table.name, state)
        check_query(query, state.schema)
        return plan_query(query, state.schema, state)


def plan_with_filters(
    query: Query, table: QueryTable, engine: QueryEngine, newest: CachedVersion | None = None
) -> QueryPlan:
    """Returns the plan of a query without the keys that the key filters of files exclude.

    `newest` is the newest version if its number was just read.
    """
    get_filter = partial(engine.key_filters.get, table.root)
    load = partial(engine.key_filters.load, table.root)
    if query.version is None and query.regions is not None:
        try:
            cached = newest or engine.newest_versions.get(table.name, table.store)
            check_query(query, cached.plan.schema)
            return _plan_cached(query.regions, cached, get_filter, load)
        except StateMovedOnError:
            pass  # The state of the version was not read yet, and a transaction followed it.
    return prune_plan(plan_table_query(query, table), get_filter, load)


def _plan_cached(
    regions: Sequence[Region], cached: CachedVersion, get_filter: GetFilter, load: LoadFilters
) -> QueryPlan:
    version = cached.plan
    if len(regions) == 1:
        key, leaf = key_of_region(version.schema, regions[0]), cached.leaf_of(regions[0])
        if key is not None and leaf is not None and leaf.deletes is not None:
            deletes = leaf.deletes.overlapping(regions[0])
            plan = plan_key(version.schema, regions[0], leaf.leaf.id, leaf.files, deletes)
            plan = prune_key(version.schema, key, plan, get_filter, load)
            return replace(version, leaves=(plan,)) if plan.scans else version
    selected = cut_leaves(regions, version.schema, cached)
    return prune_plan(plan_selected(version, selected), get_filter, load)


def _start(
    query: Query,
    table: QueryTable,
    engine: QueryEngine,
    limit: TimeLimit | None,
    is_held: bool,
    newest: CachedVersion | None,
) -> QueryResult:
    settings = engine.settings
    plan = plan_with_filters(query, table, engine, newest)
    if settings.bytes_max:
        check_size(total_bytes(plan.files), settings.bytes_max)
    restriction = table.restriction_at(plan.schema)
    columns = visible_columns(restriction, plan.schema, query.columns)
    if columns != query.columns:
        query = replace(query, columns=columns)
    target = result_schema(plan.schema, columns)
    now_ms = query_time(plan, query, engine)
    steps = make_steps(plan, query, table.iterators, now_ms, restriction)
    limit = limit or TimeLimit.from_now(settings.seconds_max)
    owner = f"query {table.name}"
    hold = VersionHold(table.store, plan.version, settings.hold_seconds, engine.clock, owner)
    has_one_leaf = len(plan.leaves) <= 1
    try:
        if not is_held and not has_one_leaf:
            hold.acquire()
        rows = read_rows(plan, query, table.root, engine, target, steps, limit)
        first = next(rows, None)
        if not is_held and has_one_leaf:
            # Most results of one leaf have one batch, and need no hold. The second batch is read
            # before the first is returned, so that the query can still restart.
            second = next(rows, None)
            if second is not None:
                hold.acquire()
            rows = prepend_batch(second, rows)
    except BaseException:
        hold.release()
        raise
    holds = () if is_held else (hold,)
    return QueryResult(target, prepend_batch(first, rows), holds, settings.rows_max)


def result_schema(schema: Schema, columns: tuple[str, ...] | None) -> pa.Schema:
    """Returns the Arrow schema of the columns, `None` for all."""
    whole = arrow_schema(schema)
    return whole if columns is None else pa.schema([whole.field(name) for name in columns])


def make_steps(
    plan: QueryPlan,
    query: Query,
    iterators: TableIterators,
    now_ms: int,
    restriction: Restriction = NO_RESTRICTION,
) -> tuple[ProcessingStep, ...]:
    """Returns the processing of the table, of the caller's restriction, and of the query."""
    table_processing = NO_PROCESSING if query.raw else plan.processing
    if (
        restriction is NO_RESTRICTION
        and table_processing.keeps_rows
        and query.processing.keeps_rows
    ):
        return ()
    forced = Processing(iterator=restriction.iterator)
    steps = [ProcessingStep(table_processing, now_ms, iterators.bind(table_processing.iterator))]
    for processing in (forced, query.processing):
        iterator = iterators.bind(processing.iterator)
        if iterator is not None:
            iterator.check(plan.schema)
        if processing is query.processing:
            _check_restriction(query, restriction, plan.schema, iterator)
        steps.append(ProcessingStep(processing, now_ms, iterator))
    return tuple(step for step in steps if not step.processing.keeps_rows)


def _check_restriction(
    query: Query, restriction: Restriction, schema: Schema, iterator: BoundIterator | None
) -> None:
    """Raises `InvalidRequestError` if the query's processing reads hidden fields."""
    if restriction.value_fields is None:
        return
    read_fields = [each.field for each in query.processing.filters]
    if iterator is not None:
        needed = iterator.required_fields(schema)
        read_fields += [f.name for f in schema.fields] if needed is None else needed
    visible_columns(restriction, schema, tuple(read_fields))


def query_time(plan: QueryPlan, query: Query, engine: QueryEngine) -> int:
    """Returns the current time for filters, in milliseconds: the version's for an old version."""
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
    stored: Stored | None = None,
    numbered: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the plan after the steps, with the target schema, leaf after leaf.

    `stored` requests hidden columns and tombstones of latest rows, as files have them; `numbered`
    the column `__number` of a table of all rows, the newest number of each row's file.
    """
    plan = _join_small_leaves(plan, query)
    left = query.limit
    request = MergeRequest(plan.schema, (), query.columns, left, steps, stored, numbered)
    reads_all = query.limit is None and query.columns is None
    with contextlib.ExitStack() as reading:
        filled = reading.enter_context(
            contextlib.closing(_fill_distant(plan, query, request, root, engine))
        )
        extracts: Iterator[Extracts] | None = None
        for index, leaf in enumerate(plan.leaves):
            if left == 0:
                return
            try:
                paged = next(filled, None)
                if paged is not None:
                    batches = _merge_filled(_with_limit(paged, left), engine)
                else:
                    if extracts is None:
                        made = _extract(plan, index, query, root, engine)
                        extracts = reading.enter_context(contextlib.closing(made))
                    request = _with_limit(request, left)
                    batches = _read_leaf(
                        leaf, request, extracts, root, engine, time_limit, reads_all
                    )
                for batch in batches:
                    time_limit.check()
                    if batch.num_rows:
                        if left is not None:
                            left -= batch.num_rows
                        yield batch if batch.schema.equals(target) else batch.cast(target)
            except DataError as error:
                files = [scan.file for scan in leaf.scans]
                raise engine.find_damage(plan.schema, files, root) or error from error


def _join_small_leaves(plan: QueryPlan, query: Query) -> QueryPlan:
    """Returns the plan with neighbours joined, except of keys, which leaves read side by side."""
    if has_few_keys(query, plan.schema):
        return plan
    return replace(plan, leaves=tuple(join_neighbours(plan.schema, plan.leaves)))


def _with_limit(request: MergeRequest, limit: int | None) -> MergeRequest:
    return request if request.limit == limit else replace(request, limit=limit)


def _extract(
    plan: QueryPlan, first: int, query: Query, root: DataRoot, engine: QueryEngine
) -> Generator[Extracts, None, None]:
    """Yields the extracts of the leaves, from the first index on."""
    scans = [[(scan.file, scan.regions) for scan in leaf.scans] for leaf in plan.leaves[first:]]
    # With a limit, rows of later leaves may not be needed, so they are not prefetched.
    ahead = {} if query.limit is None else {"ahead": 0}
    return engine.extractor.extract_leaves(root, plan.schema, scans, **ahead)


def _fill_distant(
    plan: QueryPlan, query: Query, request: MergeRequest, root: DataRoot, engine: QueryEngine
) -> Generator[MergeRequest, None, None]:
    """Yields the merges of leaves on S3 with rows in memory, up to a leaf for the engine.

    Reads pages of one leaf, or of several if the query is of keys. For ranges over several leaves,
    and if checksums must be verified, row groups are fetched.
    """
    settings = engine.settings
    reads_pages = bool(root.buckets) and settings.reads_pages and not settings.verifies_checksums
    is_suitable = len(plan.leaves) == 1 or has_few_keys(query, plan.schema)
    leaves = plan.leaves if reads_pages and is_suitable else ()

    def fill(leaf: LeafPlan, parts: int) -> MergeRequest | None:
        inputs = _inputs(leaf, request.schema, root, engine, {})
        return _fill(leaf, replace(request, inputs=inputs), root, engine, parts)

    return engine.pages.fill_ahead(leaves, fill, is_ahead=query.limit is None)


def _read_leaf(
    leaf: LeafPlan,
    request: MergeRequest,
    extracts: Iterator[Extracts],
    root: DataRoot,
    engine: QueryEngine,
    time_limit: TimeLimit,
    reads_all: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a leaf, from few pages of its files if possible."""
    extracted = next(extracts)
    _verify(leaf, root, engine, extracted, reads_all, time_limit)
    inputs = _inputs(leaf, request.schema, root, engine, extracted)
    request = replace(request, inputs=inputs)
    paged = None if root.buckets else _fill(leaf, request, root, engine)
    yield from engine.merge(request) if paged is None else _merge_filled(paged, engine)


def _fill(
    leaf: LeafPlan, request: MergeRequest, root: DataRoot, engine: QueryEngine, parts: int = 1
) -> MergeRequest | None:
    """Returns the merge of a leaf with rows in memory, None if the engine should read the files.

    So many `parts` of a query are read at once.
    """
    if not engine.settings.reads_pages:
        return None
    return engine.pages.fill(root, request, [scan.file for scan in leaf.scans], parts)


def _merge_filled(request: MergeRequest, engine: QueryEngine) -> Iterator[pa.RecordBatch]:
    if request.steps:
        yield from engine.merge(request)
    else:
        yield from merge_rows(request).to_batches(_BATCH_ROWS)


def _verify(
    leaf: LeafPlan,
    root: DataRoot,
    engine: QueryEngine,
    extracts: Extracts,
    reads_all: bool,
    time_limit: TimeLimit,
) -> None:
    """Verifies the checksums of the leaf's files, if the settings require it.

    Local files that are read whole are always verified, which takes 3 % of the time.
    """
    for scan in leaf.scans:
        extract = extracts.get(scan.file.path)
        is_cheap = reads_all and scan.regions is None and not root.buckets
        is_required = engine.settings.verifies_checksums or is_cheap
        if is_required and (extract is None or not extract.is_verified):
            time_limit.check()
            engine.verified.verify(root, scan.file.path)


def _inputs(
    leaf: LeafPlan, schema: Schema, root: DataRoot, engine: QueryEngine, extracts: Extracts
) -> tuple[MergeInput, ...]:
    inputs = []
    # The files of a leaf mostly share their deletes.
    opened: dict[int, DeletedRows] = {}
    for scan in leaf.scans:
        if scan.deleted and id(scan.deleted) not in opened:
            deleted = [(each.region, each.keys) for each in scan.deleted]
            opened[id(scan.deleted)] = open_deleted(schema, deleted, root, engine.key_files)
        extract = extracts.get(scan.file.path)
        url = root.url_of(scan.file.path) if extract is None else str(extract.path)
        size = scan.file.bytes if extract is None else extract.bytes
        rows, version = opened.get(id(scan.deleted)), scan.file.schema_version
        number = scan.file.largest_number if schema.latest is None else scan.file.number
        inputs.append(MergeInput(url, scan.regions, size, rows, version, number))
    return tuple(inputs)
