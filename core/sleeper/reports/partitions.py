"""The report on the partition tree."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sleeper.partitions.json import region_to_json
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.reports.listing import Column, ColumnKind, Listing, Value, counted, note_of_more
from sleeper.reports.partition_tree import draw_tree
from sleeper.schema.model import Schema
from sleeper.statestore.reading.file_queries import Held
from sleeper.statestore.reading.partition_queries import LeafRows
from sleeper.statestore.store import StateStore

_COLUMNS = (
    Column("table", "Table"),
    Column("partition", "Partition"),
    Column("parent", "Parent"),
    Column("leaf", "Leaf"),
    Column("depth", "Depth", ColumnKind.COUNT),
    Column("region", "Region"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("rows_above", "Rows above", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
)


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """A partition in its tree.

    `rows` and `files` are of references to the partition itself. `rows_above` is a leaf's
    share of what still lies on its ancestors.
    """

    partition: Partition
    depth: int
    rows: int
    rows_above: int
    files: int


@dataclass(frozen=True, slots=True)
class PartitionsReport:
    """The first of a table's partitions, each parent before its children, in key order."""

    table_name: str
    schema: Schema
    partitions: tuple[ReportedPartition, ...]
    total: int
    leaves: int

    def listing(self) -> Listing:
        """A row for each partition; as text, the tree."""
        partitions, leaves = (
            counted(self.total, "partition"),
            counted(self.leaves, "leaf", "leaves"),
        )
        return Listing(
            name="partitions",
            summary=f"table {self.table_name}: {partitions}, {leaves}",
            columns=_COLUMNS,
            rows=tuple(self._row(each) for each in self.partitions),
            drawing=draw_tree(self.schema, self.partitions),
            note=note_of_more(self.total, len(self.partitions), "partition"),
        )

    def _row(self, reported: ReportedPartition) -> tuple[Value, ...]:
        partition = reported.partition
        return (
            self.table_name,
            partition.id,
            partition.parent_id,
            partition.is_leaf,
            reported.depth,
            region_to_json(self.schema, partition.region),
            reported.rows,
            reported.rows_above,
            reported.files,
        )


def gather_partitions(store: StateStore, table_name: str, limit: int) -> PartitionsReport:
    """Reads the newest version of the table's state."""
    with store.reading() as state:
        partitions = list(state.partitions.all())
        leaf_rows = {rows.partition_id: rows for rows in state.partitions.leaf_rows()}
        held = {each.partition_id: each for each in state.files.held_by_partition()}
        schema = state.schema
    shown = islice(in_tree_order(partitions), limit)
    return PartitionsReport(
        table_name,
        schema,
        tuple(_reported(depth, p, held, leaf_rows) for depth, p in shown),
        len(partitions),
        sum(p.is_leaf for p in partitions),
    )


def _reported(
    depth: int,
    partition: Partition,
    held: Mapping[PartitionId, Held],
    leaf_rows: Mapping[PartitionId, LeafRows],
) -> ReportedPartition:
    own = held.get(partition.id, Held(partition.id, 0, 0))
    of_leaf = leaf_rows.get(partition.id)
    above = of_leaf.rows_above if of_leaf else 0
    return ReportedPartition(partition, depth, own.rows, above, own.files)


def in_tree_order(partitions: Iterable[Partition]) -> Iterator[tuple[int, Partition]]:
    """Depth and partition, each parent before its children, children in key order."""
    children: defaultdict[PartitionId | None, list[Partition]] = defaultdict(list)
    for partition in partitions:
        children[partition.parent_id].append(partition)
    # A tree that grew with ever larger keys is deeper than Python's stack.
    left = [(0, p) for p in _in_key_order(children[None])]
    while left:
        depth, partition = left.pop()
        yield depth, partition
        left += [(depth + 1, p) for p in _in_key_order(children[partition.id])]


def _in_key_order(partitions: Sequence[Partition]) -> list[Partition]:
    """Last first, as a stack wants them."""
    return sorted(partitions, key=lambda p: [r.min for r in p.region.ranges], reverse=True)
