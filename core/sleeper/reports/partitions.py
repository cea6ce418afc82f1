"""The report on the partition tree."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sleeper.partitions.json import key_value_to_json, region_to_json
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted, note_of_more
from sleeper.schema.model import Field, KeyValue, Schema
from sleeper.statestore.reading.file_queries import Held
from sleeper.statestore.reading.partition_queries import LeafRows
from sleeper.statestore.store import StateStore

_BAR_WIDTH = 20
_VALUE_LENGTH_MAX = 40


class DrawnPartition(Protocol):
    """What the drawing needs of a partition."""

    @property
    def partition(self) -> Partition: ...
    @property
    def depth(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_above(self) -> int: ...
    @property
    def files(self) -> int: ...


def draw_tree(schema: Schema, partitions: Sequence[DrawnPartition]) -> tuple[str, ...]:
    """A line for each partition: its id and cut, and its rows and files.

    The cut is what sets a partition apart from its parent. Leaves have a bar whose
    length is their rows beside those of the largest leaf. Parents come before their
    children; some at the end may be missing.
    """
    regions = {each.partition.id: each.partition.region for each in partitions}
    largest = max((_rows(p) for p in partitions if p.partition.is_leaf), default=0)
    trunks = _trunks(partitions)
    names = [
        f"{trunk}{each.partition.id}  {_cut(schema, each.partition, regions)}".rstrip()
        for trunk, each in zip(trunks, partitions, strict=True)
    ]
    width = max(map(len, names), default=0)
    return tuple(
        f"{name:<{width}}  {_content(each, largest)}".rstrip()
        for name, each in zip(names, partitions, strict=True)
    )


def _rows(drawn: DrawnPartition) -> int:
    return drawn.rows + drawn.rows_above


def _content(drawn: DrawnPartition, largest: int) -> str:
    if not drawn.partition.is_leaf:
        return f"{_counts(drawn.rows, drawn.files)}  to be pushed down" if drawn.files else ""
    share = _rows(drawn) / largest if largest else 0
    bar = "█" * max(round(share * _BAR_WIDTH), 1 if drawn.rows else 0)
    above = f"  {drawn.rows_above:,} of them in files above" if drawn.rows_above else ""
    return f"{_counts(_rows(drawn), drawn.files)}  {bar}{above}"


def _counts(rows: int, files: int) -> str:
    row, file = "row " if rows == 1 else "rows", "file " if files == 1 else "files"
    return f"{rows:>13,} {row} {files:>6,} {file}"


def _trunks(partitions: Sequence[DrawnPartition]) -> list[str]:
    """What stands left of each partition, from the last up: is there a sibling below?"""
    trunks: list[str] = []
    goes_on: list[bool] = []
    for each in reversed(partitions):
        depth = each.depth
        del goes_on[depth + 1 :]
        goes_on += [False] * (depth + 1 - len(goes_on))
        if depth:
            stems = "".join("│  " if goes_on[level] else "   " for level in range(1, depth))
            trunks.append(stems + ("├─ " if goes_on[depth] else "└─ "))
        else:
            trunks.append("")
        goes_on[depth] = True
    return trunks[::-1]


def _cut(schema: Schema, partition: Partition, regions: dict[PartitionId, Region]) -> str:
    parent = regions.get(partition.parent_id) if partition.parent_id else None
    if parent is None:
        return "everything"
    cuts = [
        _range_text(field, of_child, of_parent)
        for field, of_child, of_parent in zip(
            schema.row_keys, partition.region.ranges, parent.ranges, strict=True
        )
        if of_child != of_parent
    ]
    return " and ".join(cuts)


def _range_text(field: Field, of_child: Range, of_parent: Range) -> str:
    low = f"{_value_text(of_child.min)} <= " if of_child.min != of_parent.min else ""
    changed = of_child.max is not None and of_child.max != of_parent.max
    high = f" < {_value_text(of_child.max)}" if changed and of_child.max is not None else ""
    if low and not high:
        return f"{field.name} >= {_value_text(of_child.min)}"
    return f"{low}{field.name}{high}"


def _value_text(value: KeyValue) -> str:
    text = json.dumps(key_value_to_json(value), ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 1] + "…"


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
