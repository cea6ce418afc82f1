"""The change feed of a table: the rows that ingests added between two versions.

Each file of an ingest or an import is read once; files that compactions write are not part of
the feed. The table's filters, aggregations and iterator apply to the table as a whole, so the
feed skips them. The feed after a version is complete while that version is readable: a hold or
a follower on it keeps the files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region
from sleeper.query.distributed.plan import Part, parts_of_leaves
from sleeper.query.distributed.read import Read
from sleeper.query.plan import FileScan, LeafPlan, QueryPlan, disjoint_regions
from sleeper.query.request import Query, check_query
from sleeper.query.run import parse_schema
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore

# After this many transactions without a new file the feed advances, so that older versions can
# be collected.
_QUIET_TRANSACTIONS = 1000
_FILES_PER_PAGE = 10_000


def check_feed_start(store: StateStore, start: int) -> None:
    """InvalidRequestError if the feed after the version is incomplete, or the version is new."""
    with store.reading() as state:
        state.check_changes_after(start)


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
    if end == start and newest - start >= _QUIET_TRANSACTIONS:
        return newest
    return end


def plan_feed(
    store: StateStore, start: int, end: int, query: Query, part_bytes: int
) -> tuple[Read, list[Part]]:
    """Plans a read of the files added after `start`, up to `end`, in parts of `part_bytes`.

    Only the query's regions and columns apply.
    """
    with store.reading() as state:
        state.check_changes_after(start)
        schema = parse_schema(state.schema_json)
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
            cut = None if regions is None else _overlapping(regions, file)
            if cut is None or cut:
                yield FileScan(file, cut)
        start = page[-1][0]


def _overlapping(regions: Sequence[Region], file: DataFile) -> tuple[Region, ...] | None:
    """Returns the regions that overlap the file; None if one contains the whole file."""
    bounds = file.smallest_key, file.largest_key
    if any(r.contains_bounds(*bounds) for r in regions):
        return None
    return tuple(r for r in regions if r.overlaps_bounds(*bounds))
