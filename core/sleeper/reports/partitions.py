"""The report on the partition tree."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sleeper.partitions.json import key_value_to_json, region_to_json
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.reports.output import Column, ColumnKind, Listing, describe_omission, pluralize
from sleeper.schema.model import Field, KeyValue, Schema
from sleeper.statestore.reading.file_queries import PartitionTotals
from sleeper.statestore.store import StateStore

_BAR_WIDTH = 20
_VALUE_LENGTH_MAX = 40


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """A partition in its tree.

    `rows` and `files` count references to the partition itself. `rows_above` is a leaf's
    share of the rows that its ancestors reference.
    """

    partition: Partition
    depth: int
    rows: int = 0
    rows_above: int = 0
    files: int = 0


def draw_tree(schema: Schema, partitions: Sequence[ReportedPartition]) -> tuple[str, ...]:
    """Returns a line per partition: its id, its bounds within its parent, its rows and files.

    A leaf has a bar whose length is its rows relative to the largest leaf. Each parent must
    precede its children; partitions at the end may be missing.
    """
    regions = {each.partition.id: each.partition.region for each in partitions}
    rows_max = max((_count_rows(p) for p in partitions if p.partition.is_leaf), default=0)
    trunks = _draw_trunks(partitions)
    names = [
        f"{trunk}{each.partition.id}  {describe_bounds(schema, each.partition, regions)}".rstrip()
        for trunk, each in zip(trunks, partitions, strict=True)
    ]
    width = max(map(len, names), default=0)
    return tuple(
        f"{name:<{width}}  {_describe_content(each, rows_max)}".rstrip()
        for name, each in zip(names, partitions, strict=True)
    )


def _count_rows(drawn: ReportedPartition) -> int:
    return drawn.rows + drawn.rows_above


def _describe_content(drawn: ReportedPartition, rows_max: int) -> str:
    if not drawn.partition.is_leaf:
        return f"{_format_counts(drawn.rows, drawn.files)}  not pushed down" if drawn.files else ""
    share = _count_rows(drawn) / rows_max if rows_max else 0
    bar = "█" * max(round(share * _BAR_WIDTH), 1 if drawn.rows else 0)
    above = f"  ({drawn.rows_above:,} in ancestors)" if drawn.rows_above else ""
    return f"{_format_counts(_count_rows(drawn), drawn.files)}  {bar}{above}"


def _format_counts(rows: int, files: int) -> str:
    row, file = "row " if rows == 1 else "rows", "file " if files == 1 else "files"
    return f"{rows:>13,} {row} {files:>6,} {file}"


def _draw_trunks(partitions: Sequence[ReportedPartition]) -> list[str]:
    """Returns the lines to the left of each partition.

    Iterates backwards to learn whether a partition has a later sibling.
    """
    trunks: list[str] = []
    has_sibling: list[bool] = []
    for each in reversed(partitions):
        depth = each.depth
        del has_sibling[depth + 1 :]
        has_sibling += [False] * (depth + 1 - len(has_sibling))
        if depth:
            stems = "".join("│  " if has_sibling[level] else "   " for level in range(1, depth))
            trunks.append(stems + ("├─ " if has_sibling[depth] else "└─ "))
        else:
            trunks.append("")
        has_sibling[depth] = True
    return trunks[::-1]


def describe_bounds(
    schema: Schema, partition: Partition, regions: Mapping[PartitionId, Region]
) -> str:
    """Returns the bounds of a partition that its parent does not have, as text."""
    parent = regions.get(partition.parent_id) if partition.parent_id else None
    if parent is None:
        return "everything"
    bounds = [
        _format_range(field, child, parent_range)
        for field, child, parent_range in zip(
            schema.row_keys, partition.region.ranges, parent.ranges, strict=True
        )
        if child != parent_range
    ]
    return " and ".join(bounds)


def _format_range(field: Field, child: Range, parent: Range) -> str:
    low = f"{_format_value(field, child.min)} <= " if child.min != parent.min else ""
    changed = child.max is not None and child.max != parent.max
    high = f" < {_format_value(field, child.max)}" if changed and child.max is not None else ""
    if low and not high:
        return f"{field.name} >= {_format_value(field, child.min)}"
    return f"{low}{field.name}{high}"


def _format_value(field: Field, value: KeyValue) -> str:
    text = json.dumps(key_value_to_json(field, value), ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 1] + "…"


_POSITION_COLUMNS = (
    Column("partition", "Partition", value=lambda each: each.partition.id),
    Column("parent", "Parent", value=lambda each: each.partition.parent_id),
    Column("leaf", "Leaf", value=lambda each: each.partition.is_leaf),
    Column("depth", "Depth", ColumnKind.COUNT),
)
_CONTENT_COLUMNS = (
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("rows_above", "Rows above", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
)


def list_partitions(store: StateStore, table_name: str, limit: int) -> Listing:
    """Lists partitions of the newest version, each parent before its children, up to `limit`."""
    with store.reading() as state:
        partitions = list(state.partitions.all())
        rows_above = {each.partition_id: each.rows_above for each in state.partitions.leaf_rows()}
        held = {each.partition_id: each for each in state.files.partition_totals()}
        schema = state.schema
    shown = []
    for depth, partition in islice(walk_tree(partitions), limit):
        own = held.get(partition.id, PartitionTotals(partition.id, 0, 0, 0))
        above = rows_above.get(partition.id, 0)
        shown.append(ReportedPartition(partition, depth, own.rows, above, own.files))
    leaves = sum(p.is_leaf for p in partitions)
    return describe_partitions(table_name, schema, shown, len(partitions), leaves)


def describe_partitions(
    table_name: str,
    schema: Schema,
    partitions: Sequence[ReportedPartition],
    total: int,
    leaves: int,
) -> Listing:
    """Describes partitions, of `total` partitions of the table. Text output draws the tree."""
    region = Column("region", "Region", value=lambda p: region_to_json(schema, p.partition.region))
    listing = Listing.describe(
        "partitions",
        f"table {table_name}: {pluralize(total, 'partition')}, "
        f"{pluralize(leaves, 'leaf', 'leaves')}",
        (
            Column("table", "Table", value=lambda _: table_name),
            *_POSITION_COLUMNS,
            region,
            *_CONTENT_COLUMNS,
        ),
        partitions,
        describe_omission(total, len(partitions), "partition"),
    )
    return replace(listing, drawing=draw_tree(schema, partitions))


def walk_tree(partitions: Iterable[Partition]) -> Iterator[tuple[int, Partition]]:
    """Returns depth and partition, each parent before its children, children in key order."""
    children: defaultdict[PartitionId | None, list[Partition]] = defaultdict(list)
    for partition in partitions:
        children[partition.parent_id].append(partition)
    # Keys that only grow make a tree deeper than Python's stack.
    stack = [(0, p) for p in _sort_descending(children[None])]
    while stack:
        depth, partition = stack.pop()
        yield depth, partition
        stack += [(depth + 1, p) for p in _sort_descending(children[partition.id])]


def _sort_descending(partitions: Sequence[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda p: [r.min for r in p.region.ranges], reverse=True)
