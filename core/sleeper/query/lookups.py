"""Lookups: queries of a few keys, of which one query answers several.

The query reads the keys of all. Filters and aggregations do not see other keys than their row's, so
each lookup gets the rows that it would get alone. Iterators may, so they are never shared.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.key_values import key_values
from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.partitions.region import Range
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.request import Query
from sleeper.query.result import QueryResult, TimeLimit
from sleeper.query.run import run_query
from sleeper.schema.model import Key

_KEYS_MAX = 16
# A result is in memory as a whole. Lookups of more rows are streamed, each alone.
_ROWS_MAX = 50_000
_BYTES_MAX = 16 * 1024**2

OpenTable = Callable[[], QueryTable]
"""Opens the table as its callers see it now."""
Span = tuple[int, int]
"""The first row, and the one after the last."""


def is_lookup(query: Query) -> bool:
    """Returns whether a query is of few keys at the newest version, without an iterator."""
    regions = query.regions
    return (
        regions is not None
        and 0 < len(regions) <= _KEYS_MAX
        # Shared rows have the row key fields, too, so no columns would not be an error.
        and query.columns != ()
        and query.version is None
        and query.processing.iterator is None
        and all(_has_one_value(within) for region in regions for within in region.ranges)
    )


def _has_one_value(within: Range) -> bool:
    low, high = within.min, within.max
    if isinstance(low, int):
        return high == low + 1
    return high == (low + "\0" if isinstance(low, str) else low + b"\0")


def lookup_group(query: Query) -> Hashable:
    """Returns what lookups in one query have in common."""
    return query.columns, query.processing, query.now_ms, query.raw


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The rows of several lookups with all row key fields, in key order, and the rows of each key.

    `schema` is that of each lookup's result.
    """

    rows: pa.RecordBatch
    schema: pa.Schema
    spans: dict[Key, Span]

    def spans_of(self, query: Query) -> list[Span]:
        """Returns the rows of a lookup, in key order, up to its limit."""
        result: list[Span] = []
        left = query.limit
        for key in sorted({tuple(r.min for r in region.ranges) for region in query.regions or ()}):
            start, stop = self.spans.get(key, (0, 0))
            if left is not None:
                stop = min(stop, start + left)
                left -= stop - start
            if start < stop:
                result.append((start, stop))
        return result

    def select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with the columns of the result."""
        return rows.select(self.schema.names)

    def result(self, spans: Sequence[Span], rows_max: int = 0) -> QueryResult:
        """Returns the rows of the spans, with a maximum as of `QueryResult`."""
        batches = (self.select(self.rows.slice(start, stop - start)) for start, stop in spans)
        return QueryResult(self.schema, batches, (), rows_max)


def read_together(
    queries: Sequence[Query],
    table: QueryTable,
    engine: QueryEngine,
    limit: TimeLimit | None = None,
) -> SharedRows | None:
    """Returns the rows of lookups of one group; `None` if each must be read alone.

    Raises the errors of any of them.
    """
    newest = engine.newest_versions.get(table.name, table.store)
    version = newest.plan
    if table.restriction.iterator is not None or version.processing.iterator is not None:
        return None
    first = queries[0]
    regions = dict.fromkeys(r for query in queries for r in query.regions or ())
    keys = [f.name for f in version.schema.row_keys]
    columns = first.columns
    if columns is not None:
        columns = (*columns, *(name for name in keys if name not in columns))
    shared = replace(first, regions=tuple(regions), columns=columns, limit=None)
    # Nothing is answered before all rows are read, so they need no hold.
    with run_query(shared, table, engine, limit, is_held=True, newest=newest) as result:
        rows = _read_few(result)
        if rows is None:
            return None
        names = result.schema.names if first.columns is None else first.columns
        schema = pa.schema([result.schema.field(name) for name in names])
    return SharedRows(rows, schema, _spans(rows, keys))


def _read_few(result: QueryResult) -> pa.RecordBatch | None:
    batches, rows, size = [], 0, 0
    for batch in result:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > _ROWS_MAX or size > _BYTES_MAX:
            return None
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], result.schema)
    return pa.concat_batches(batches)


def _spans(rows: pa.RecordBatch, keys: Sequence[str]) -> dict[Key, Span]:
    """Returns the rows of each key. Makes a Python object per key, not per row."""
    if not rows.num_rows:
        return {}
    columns = [rows.column(name) for name in keys]
    starts = run_starts(columns)
    values = [key_values(column.take(pa.array(starts))) for column in columns]
    spans = zip(starts.tolist(), [*starts.tolist()[1:], rows.num_rows], strict=False)
    return dict(zip(zip(*values, strict=True), spans, strict=False))


def open_lookup(
    query: Query,
    group: Hashable,
    open_table: OpenTable,
    engine: QueryEngine,
    limit: TimeLimit | None,
) -> QueryResult:
    """Starts a lookup, in one query with lookups of the group that wait at the same time.

    Of a group, `open_table` opens the same table with the same restriction.
    """
    limit = limit or TimeLimit.from_now(engine.settings.seconds_max)

    def alone() -> QueryResult:
        return run_query(query, open_table(), engine, limit)

    def together(queries: Sequence[Query]) -> Sequence[QueryResult | None]:
        shared = read_together(queries, open_table(), engine, limit)
        if shared is None:
            return [None] * len(queries)
        rows_max = engine.settings.rows_max
        return [shared.result(shared.spans_of(each), rows_max) for each in queries]

    whole_group = (group, lookup_group(query))
    return engine.sharing.run(whole_group, query, limit, alone, together)
