"""How many rows a leaf holds, and where its keys lie, from the sketches of its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from sleeper.datafiles.sketches import KeySketch, distinct_inside, weighted_quantiles
from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import KeyValue, precedes


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Where the keys of a file's rows lie that are in a leaf.

    `rows` of the leaf are in the file, by estimate. `points` are, for each row key field,
    values of such rows, ascending, each of which stands for as many rows as the others.
    """

    rows: float
    points: tuple[tuple[KeyValue, ...], ...]


@dataclass(frozen=True, slots=True)
class LeafEstimate:
    """What a leaf holds: rows, and the keys of the files that were looked at."""

    rows: int
    files: tuple[FileKeys, ...]


def keys_of_sketches(file: DataFile, region: Region, sketches: Sequence[KeySketch]) -> FileKeys:
    """By the file's sketches, cut to the region field by field."""
    share = 1.0
    if not region.contains_bounds(file.smallest_key, file.largest_key):
        share = prod(s.share(r) for s, r in zip(sketches, region.ranges, strict=True))
    points = tuple(tuple(s.points(r)) for s, r in zip(sketches, region.ranges, strict=True))
    return FileKeys(file.rows * share, points)


def estimate_leaf(
    region: Region, seen: Sequence[tuple[DataFile, FileKeys]], unseen: Sequence[DataFile]
) -> LeafEstimate:
    """Files that were not looked at are supposed to have the share of those that were."""
    rows = sum(keys.rows for _, keys in seen)
    partial = [(f, k) for f, k in seen if not _is_inside(f, region)]
    partial_rows = sum(f.rows for f, _ in partial)
    share = sum(k.rows for _, k in partial) / partial_rows if partial_rows else 1.0
    rows += sum(f.rows if _is_inside(f, region) else f.rows * share for f in unseen)
    return LeafEstimate(round(rows), tuple(keys for _, keys in seen))


def split_points(
    estimate: LeafEstimate, within: Range, dimension: int, parts: int
) -> list[KeyValue]:
    """At most `parts - 1` values that cut the range into parts of like many rows.

    Empty if no value has rows on both of its sides.
    """
    weighted = [
        (point, keys.rows / len(keys.points[dimension]))
        for keys in estimate.files
        for point in keys.points[dimension]
        if keys.rows > 0
    ]
    if not weighted:
        return []
    # A cut at the lowest key there is would leave nothing below it.
    lowest = weighted[0][0]
    for point, _ in weighted:
        lowest = point if precedes(point, lowest) else lowest
    inside = Range(lowest, within.max)
    quantiles = weighted_quantiles(weighted, [i / parts for i in range(1, parts)])
    cuts = distinct_inside(quantiles, inside)
    if cuts:
        return cuts
    # One key holds most rows and is the lowest: cut it off from those above it.
    return distinct_inside(sorted(point for point, _ in weighted), inside)[:1]


def _is_inside(file: DataFile, region: Region) -> bool:
    return region.contains_bounds(file.smallest_key, file.largest_key)
