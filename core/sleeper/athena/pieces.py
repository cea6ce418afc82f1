"""Cuts large leaves into pieces that one read each can take on."""

from collections.abc import Iterator
from math import ceil

from sleeper.athena.connector import ConnectorSettings
from sleeper.datafiles.location import DataRoot
from sleeper.files.data_file import DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import KeyValue, Schema
from sleeper.splitting.estimate import split_points
from sleeper.splitting.key_samples import sample_keys
from sleeper.splitting.leaf_keys import LeafKeys

_PARTS_MAX = 256


def pieces_of_leaf(
    schema: Schema,
    leaf: Partition,
    files: list[DataFile],
    root: DataRoot,
    settings: ConnectorSettings,
) -> list[Region]:
    """Regions that make up the leaf's, each with about `split_bytes` of its files.

    Sidecars are read only if all of the files together have more. Rows of one row key are
    never parted, so a filter or an aggregation gives the same for the pieces as for the leaf.
    """
    size = sum(file.bytes for file in files)
    if size <= settings.split_bytes:
        return [leaf.region]
    keys = LeafKeys(
        schema,
        leaf,
        files,
        settings.sketched_files_max,
        root.read,
        lambda of, file, region: sample_keys(root, of, file, region),
    )
    for dimension, within in enumerate(leaf.region.ranges):
        estimate = keys.estimate(dimension)
        # Files shared with other leaves count by their rows that are in this one.
        share = min(estimate.rows / max(sum(file.rows for file in files), 1), 1.0)
        parts = min(ceil(size * share / settings.split_bytes), _PARTS_MAX)
        points = split_points(estimate, within, dimension, parts) if parts > 1 else []
        if points:
            return list(_cut(leaf.region, dimension, points))
    return [leaf.region]


def _cut(region: Region, dimension: int, points: list[KeyValue]) -> Iterator[Region]:
    whole = region.ranges[dimension]
    ends = [*points, whole.max]
    low = whole.min
    for end in ends:
        ranges = list(region.ranges)
        ranges[dimension] = Range(low, end)
        yield Region(tuple(ranges))
        if end is not None:
            low = end
