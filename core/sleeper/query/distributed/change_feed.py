"""What ingests added to a table between two versions, for readers that follow it.

Rows come as they were taken in: a file of an ingest or an import is handed out once, and
what compactions make of it later is not. The table's filters, aggregations and iterator are
of the table as a whole, so they are not applied. The feed after a version is complete as
long as that version is readable: a hold or a follower on it keeps the files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region
from sleeper.query.engine import QueryEngine
from sleeper.query.interruption import TimeLimit
from sleeper.query.plan import FileScan, LeafPlan, QueryPlan, disjoint_regions
from sleeper.query.request import Query, check_query
from sleeper.query.run import parsed_schema, result_schema, rows_of
from sleeper.schema.model import Schema
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot

# So many transactions without a new file, and the feed moves on all the same: what came before
# need not be kept for it any longer.
_QUIET_TRANSACTIONS = 1000
_FILES_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class FeedPiece:
    """Files to read one after another, each in the regions given; None for every row."""

    scans: tuple[FileScan, ...]


def check_feed_start(store: StateStore, start: int) -> None:
    """InvalidRequestError if what came after the version is not all there any more, or yet."""
    with store.reading() as state:
        state.check_changes_after(start)


def next_version(store: StateStore, start: int, files_max: int | None, last: int | None) -> int:
    """Up to which version to read next: `start` if nothing came.

    About as many files as given: those of one transaction stay together. `last` is a
    version that is not passed.
    """
    with store.reading() as state:
        state.check_changes_after(start)
        newest: int = state.number if last is None else min(last, state.number)
        found = start
        while found < newest:
            page = state.files.ingested_after(found, files_max or _FILES_AT_ONCE)
            reached = [number for number, _ in page if number <= newest]
            if reached:
                found = reached[-1]
            if not reached or files_max is not None:
                break
    if found == start and newest - start >= _QUIET_TRANSACTIONS:
        return newest
    return found


def plan_feed(
    store: StateStore, start: int, end: int, query: Query, bytes_per_piece: int
) -> tuple[Schema, list[FeedPiece]]:
    """The files added after `start`, up to `end`. Small ones go together.

    Of the query, regions and columns count.
    """
    with store.reading() as state:
        state.check_changes_after(start)
        schema = parsed_schema(state.schema_json)
        check_query(query, schema)
        scans = list(_scans(state, start, end, query))
    return schema, _pieces(scans, bytes_per_piece)


def read_feed_piece(
    schema: Schema, query: Query, piece: FeedPiece, root: DataRoot, engine: QueryEngine
) -> Iterator[pa.RecordBatch]:
    """The rows of the piece's files, file after file, in the columns asked for."""
    leaves = tuple(LeafPlan((), (scan,)) for scan in piece.scans)
    limit = TimeLimit.from_now(engine.settings.seconds_max)
    target = result_schema(schema, query.columns)
    plan = QueryPlan(schema, 0, leaves)
    yield from rows_of(plan, query, root, engine, target, (), limit)


def _scans(state: TableState, start: int, end: int, query: Query) -> Iterator[FileScan]:
    regions = None if query.regions is None else disjoint_regions(query.regions)
    while start < end:
        page = state.files.ingested_after(start, _FILES_AT_ONCE)
        if not page:
            return
        for number, file in page:
            if number > end:
                return
            wanted = None if regions is None else _overlapping(regions, file)
            if wanted is None or wanted:
                yield FileScan(file, wanted)
        start = page[-1][0]


def _overlapping(regions: Sequence[Region], file: DataFile) -> tuple[Region, ...] | None:
    """Where the file's wanted rows are; None if it has no others."""
    bounds = file.smallest_key, file.largest_key
    if any(r.contains_bounds(*bounds) for r in regions):
        return None
    return tuple(r for r in regions if r.overlaps_bounds(*bounds))


def _pieces(scans: Sequence[FileScan], bytes_per_piece: int) -> list[FeedPiece]:
    groups: list[list[FileScan]] = []
    room = 0
    for scan in scans:
        if not groups or scan.file.bytes > room:
            groups.append([])
            room = bytes_per_piece
        groups[-1].append(scan)
        room -= scan.file.bytes
    return [FeedPiece(tuple(group)) for group in groups]
