"""Whether partitions cut their parent without gap or overlap."""

from collections.abc import Sequence

from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Region
from sleeper.schema.model import precedes


def find_subtree_fault(
    root_id: PartitionId, root_region: Region, below: Sequence[Partition], levels_max: int | None
) -> str | None:
    """Why `below` is not a sound tree under the root, parents first; None if it is."""
    regions = {root_id: root_region}
    levels = {root_id: 0}
    children: dict[PartitionId, list[Region]] = {}
    for partition in below:
        parent_id = partition.parent_id
        if parent_id is None or parent_id not in regions:
            return f"partition {partition.id} comes without its parent {parent_id} before it"
        if partition.id in regions:
            return f"partition {partition.id} comes twice"
        regions[partition.id] = partition.region
        levels[partition.id] = levels[parent_id] + 1
        children.setdefault(parent_id, []).append(partition.region)
    if levels_max is not None and max(levels.values()) > levels_max:
        return f"the split is {max(levels.values())} levels deep: at most {levels_max}"
    for partition in below:
        if partition.is_leaf == (partition.id in children):
            return f"partition {partition.id} has the wrong mark: leaf is {partition.is_leaf}"
    for parent_id, parts in children.items():
        if not tiles(regions[parent_id], parts):
            return f"the children of partition {parent_id} do not tile its region"
    return None


def tiles(whole: Region, parts: Sequence[Region]) -> bool:
    """Whether two or more parts cut the whole along one dimension, exactly."""
    if len(parts) < 2 or any(len(p.ranges) != len(whole.ranges) for p in parts):
        return False
    cut = [i for i, r in enumerate(whole.ranges) if any(part.ranges[i] != r for part in parts)]
    if len(cut) != 1:
        return False
    dimension = cut[0]
    ranges = sorted((p.ranges[dimension] for p in parts), key=lambda r: r.min)
    ends = [whole.ranges[dimension].min, *(r.max for r in ranges)]
    starts = [*(r.min for r in ranges), whole.ranges[dimension].max]
    return ends == starts and all(r.max is None or precedes(r.min, r.max) for r in ranges)
