"""The sizes of partitions and of the trees below them, for pictures of large trees."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.partitions.json import region_to_json
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.reports.partitions import describe_bounds, walk_tree
from sleeper.schema.model import Schema
from sleeper.statestore.reading.file_queries import PartitionTotals
from sleeper.statestore.store import StateStore


@dataclass(slots=True)
class SizedPartition:
    """A partition. `rows`, `bytes`, `references` and `leaves` include the partitions below it.

    A reference is to a file, which several partitions can share. `own` has the references of the
    partition itself. Rows and bytes are estimates after a split.
    """

    partition: Partition
    depth: int
    own: PartitionTotals
    rows: int
    bytes: int
    references: int
    leaves: int
    children: int = 0


def list_partition_sizes(
    store: StateStore, table_name: str, limit: int, root: PartitionId | None = None
) -> tuple[Listing, Mapping[str, int]]:
    """Lists partitions at or below a root, level by level, up to `limit`, in key order.

    Also returns the numbers of partitions and leaves at or below it. By default, the root is that
    of the table. NotFoundError if there is no such partition.
    """
    with store.reading() as state:
        partitions = list(state.partitions.all())
        own = {each.partition_id: each for each in state.files.partition_totals()}
        schema = state.schema
    tree = list(walk_tree(partitions))
    sized = measure_tree(tree, own)
    shown = _walk_levels(tree, sized, root)
    top = sized[shown[0]]
    regions = {each.id: each.region for each in partitions}
    keys = Column("keys", "Keys", value=lambda e: describe_bounds(schema, e.partition, regions))
    listing = _describe(table_name, schema, keys, [sized[each] for each in shown[:limit]])
    return listing, {"partitions": len(shown), "leaves": top.leaves}


def measure_tree(
    tree: Sequence[tuple[int, Partition]], own: Mapping[PartitionId, PartitionTotals]
) -> dict[PartitionId, SizedPartition]:
    """Returns partitions with the sizes of their trees. Each parent must precede its children."""
    sized: dict[PartitionId, SizedPartition] = {}
    for depth, partition in tree:
        held = own.get(partition.id, PartitionTotals(partition.id, 0, 0, 0))
        sized[partition.id] = SizedPartition(
            partition, depth, held, held.rows, held.bytes, held.files, int(partition.is_leaf)
        )
    for _, partition in reversed(tree):
        child = sized[partition.id]
        parent = sized.get(partition.parent_id) if partition.parent_id is not None else None
        if parent is not None:
            parent.rows += child.rows
            parent.bytes += child.bytes
            parent.references += child.references
            parent.leaves += child.leaves
            parent.children += 1
    return sized


def _walk_levels(
    tree: Iterable[tuple[int, Partition]],
    sized: Mapping[PartitionId, SizedPartition],
    root: PartitionId | None,
) -> list[PartitionId]:
    children: dict[PartitionId | None, list[PartitionId]] = {}
    for _, partition in tree:
        children.setdefault(partition.parent_id, []).append(partition.id)
    if root is not None and root not in sized:
        raise NotFoundError(f"no partition {root!r} in the table")
    waiting = deque(children.get(None, ()) if root is None else [root])
    result = []
    while waiting:
        result.append(waiting.popleft())
        waiting.extend(children.get(result[-1], ()))
    return result


_COLUMNS = (
    Column("partition", "Partition", value=lambda each: each.partition.id),
    Column("parent", "Parent", value=lambda each: each.partition.parent_id),
    Column("leaf", "Leaf", value=lambda each: each.partition.is_leaf),
    Column("depth", "Depth", ColumnKind.COUNT),
    Column("children", "Children", ColumnKind.COUNT),
    Column("leaves", "Leaves", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("references", "References", ColumnKind.COUNT),
    Column("ownRows", "Own rows", ColumnKind.COUNT, lambda each: each.own.rows),
    Column("ownReferences", "Own references", ColumnKind.COUNT, lambda each: each.own.files),
)


def _describe(
    table_name: str, schema: Schema, keys: Column, shown: Sequence[SizedPartition]
) -> Listing:
    region = Column(
        "region", "Region", value=lambda each: region_to_json(schema, each.partition.region)
    )
    return Listing.describe(
        "partition-sizes",
        f"table {table_name}: {pluralize(len(shown), 'partition')}",
        (_COLUMNS[0], keys, *_COLUMNS[1:], region),
        shown,
    )
