"""Queries and change feeds of a table, planned here and read piece by piece in other processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from sleeper.errors import StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.query.distributed.change_feed import FeedPiece, plan_feed, read_feed_piece
from sleeper.query.distributed.pieces import PiecedQuery, QueryPiece, plan_pieces, read_piece
from sleeper.query.distributed.shared_hold import HoldRenewal
from sleeper.query.request import Query
from sleeper.query.service import iterators_of, query_table
from sleeper.schema.model import Schema
from sleeper.tables.table_ref import TableRef


@dataclass(frozen=True, slots=True)
class TableScan:
    """What the processes that read a planned query need, beside their piece."""

    ref: TableRef
    shared: PiecedQuery


@dataclass(frozen=True, slots=True)
class FeedScan:
    """A piece of a change feed, whole."""

    ref: TableRef
    schema: Schema
    query: Query
    piece: FeedPiece


def plan_scan(
    table: OpenTable, query: Query, owner: str, bytes_per_piece: int
) -> tuple[TableScan, list[QueryPiece]]:
    """Plans the query on the newest version, or its own, and holds it for `owner`."""
    engine = table.instance.queries.engine()
    shared, pieces = plan_pieces(query, query_table(table), engine, owner, bytes_per_piece)
    return TableScan(table.ref, shared), pieces


def read_scan(instance: Instance, scan: TableScan, piece: QueryPiece) -> Iterator[pa.RecordBatch]:
    """The piece's rows; its version is held as long as it takes."""
    table = OpenTable(instance, scan.ref)
    engine = instance.queries.engine()
    hold = scan.shared.hold
    assert hold is not None, "a plan with pieces is held"
    with _gone_or_deleted(table), HoldRenewal(hold, lambda: table.state, instance.clock):
        yield from read_piece(
            scan.shared, piece, instance.storage.root, iterators_of(table), engine
        )


def plan_feed_scans(
    table: OpenTable, start: int, end: int, query: Query, bytes_per_piece: int
) -> list[FeedScan]:
    """What came after one version up to another. Whoever asks holds the first."""
    schema, pieces = plan_feed(table.state, start, end, query, bytes_per_piece)
    return [FeedScan(table.ref, schema, query, piece) for piece in pieces]


def read_feed_scan(instance: Instance, scan: FeedScan) -> Iterator[pa.RecordBatch]:
    """The rows of a piece of a change feed."""
    engine = instance.queries.engine()
    with _gone_or_deleted(OpenTable(instance, scan.ref)):
        yield from read_feed_piece(
            scan.schema, scan.query, scan.piece, instance.storage.root, engine
        )


@contextmanager
def _gone_or_deleted(table: OpenTable) -> Iterator[None]:
    """Of what is gone says so, if that is because the table was deleted."""
    try:
        yield
    except StateMovedOnError:
        table.check_active()
        raise
