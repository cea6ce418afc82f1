"""Pieces: the parts of a table that become a file each, and their writing."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.merge.latest import Stored, with_hidden
from sleeper.datafiles.merge.processing import ProcessingStep
from sleeper.instance import OpenTable
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.query.distributed.plan import divide_leaves
from sleeper.query.engine import QueryEngine
from sleeper.query.plan import LeafPlan, QueryPlan
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import make_steps, plan_table_query, query_time, read_rows, result_schema
from sleeper.query.service import make_query_table
from sleeper.schema.model import NUMBER_COLUMN, Schema
from sleeper.stash.documents import DocumentWriter
from sleeper.stash.layout import piece_name
from sleeper.storage.location import DataRoot

# Of igzip's levels 0 to 3. Documents become as small as with level 1 of zlib, in a third of the
# time (docs/design/0015-stash.md).
_LEVEL = 2
_GZIP_WINDOW_BITS = 31


@dataclass(frozen=True, slots=True)
class Piece:
    """A leaf or a part of one, and the name of its file."""

    file: str
    leaf: LeafPlan


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table at its cut, divided into pieces. `plan` has no leaves."""

    table: OpenTable
    query: Query
    plan: QueryPlan
    steps: tuple[ProcessingStep, ...]
    pieces: tuple[Piece, ...]


def plan_table(
    table: OpenTable, version: int, engine: QueryEngine, piece_bytes: int
) -> TablePlan | None:
    """Returns the pieces of a table at a version; None if no row was ever loaded.

    A leaf of more than `piece_bytes` is divided at quantiles of its files' sketches.
    """
    query = Query(version=version)
    query_table = make_query_table(table)
    with table.state.reading(version) as state:
        if state.is_snapshot_table and not state.files.extent().files:
            return None
    plan = plan_table_query(query, query_table)
    steps = make_steps(plan, query, query_table.iterators, query_time(plan, query, engine))
    files_max = table.instance.properties().get(SPLITTING_FILES_MAX)
    leaves = divide_leaves(plan, query_table.root, files_max, piece_bytes)
    pieces = tuple(_name_pieces(table, leaves))
    return TablePlan(table, query, replace(plan, leaves=()), steps, pieces)


def _name_pieces(table: OpenTable, leaves: list[LeafPlan]) -> Iterator[Piece]:
    for shard, (_, parts) in enumerate(groupby(leaves, lambda leaf: leaf.leaf_ids)):
        for number, leaf in enumerate(parts):
            yield Piece(piece_name(table.ref.name, shard, table.ref.id, number), leaf)


@dataclass(frozen=True, slots=True)
class Written:
    """The rows of a piece and the bytes of its file."""

    rows: int = 0
    bytes: int = 0


def write_piece(
    planned: TablePlan, piece: Piece, engine: QueryEngine, target: DataRoot, folder: str
) -> Written:
    """Writes the file of a piece, whole or not at all; none for a piece without rows."""
    state = planned.table.state

    def times_of(numbers: Sequence[int]) -> list[int]:
        with state.reading() as newest:
            return newest.history.times(numbers)

    writer = DocumentWriter(planned.table.ref.name, planned.plan.schema, times_of)
    with closing(_read(planned, piece, engine)) as batches:
        first = next(batches, None)
        if first is None:
            return Written()
        rows = size = 0
        compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)
        with target.replacing(f"{folder}/{piece.file}") as sink:
            batch: tuple[pa.RecordBatch, pa.Array] | None = first
            while batch is not None:
                lines = writer.documents(*batch)
                content = compressor.compress(_joined(lines))
                sink.write(content)
                rows, size = rows + len(lines), size + len(content)
                batch = next(batches, None)
            content = compressor.flush()
            sink.write(content)
    return Written(rows, size + len(content))


def _joined(lines: pa.Array) -> pa.Buffer:
    """Returns the lines with their ends."""
    ended = pc.binary_join_element_wise(lines, "", "\n")
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), ended)
    return pc.binary_join(whole, "")[0].as_buffer()


def _read(
    planned: TablePlan, piece: Piece, engine: QueryEngine
) -> Generator[tuple[pa.RecordBatch, pa.Array], None, None]:
    """Yields the rows of a piece with the transaction number of each."""
    schema = planned.plan.schema
    has_numbers = _has_numbers(schema, planned.steps)
    stored = Stored(has_tombstones=False) if has_numbers and schema.latest is not None else None
    read = with_hidden(schema, True, False) if has_numbers else schema
    numbered = has_numbers and stored is None
    plan = replace(planned.plan, leaves=(piece.leaf,))
    root, limit = planned.table.instance.storage.root, TimeLimit.from_now(0)
    target = arrow_schema(read)
    names = result_schema(schema, None).names
    newest = max(scan.file.largest_number or 0 for scan in piece.leaf.scans)
    batches = read_rows(
        plan, planned.query, root, engine, target, planned.steps, limit, stored, numbered
    )
    for batch in batches:
        if has_numbers:
            yield batch.select(names), batch.column(NUMBER_COLUMN)
        else:
            yield batch, pa.repeat(pa.scalar(newest, pa.int64()), batch.num_rows)


def _has_numbers(schema: Schema, steps: tuple[ProcessingStep, ...]) -> bool:
    """Returns whether rows can be read with their numbers, which iterators do not keep."""
    is_taken = schema.latest is None and NUMBER_COLUMN in (f.name for f in schema.fields)
    return not is_taken and all(step.iterator is None for step in steps)
