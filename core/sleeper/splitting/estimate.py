"""Estimates of the rows and keys of a leaf, from the sketches of its files."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from sleeper.datafiles.sidecars.sketches import (
    KeySketch,
    distinct_inside,
    sketches_from_bytes,
    weighted_quantiles,
)
from sleeper.errors import DataError, NotFoundError
from sleeper.files import SKETCHES_SUFFIX, DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import KeyValue, Schema, precedes


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The keys of a file's rows in a leaf.

    `rows` of the leaf are in the file, by estimate. `points` are, for each row key field,
    values of such rows, ascending, each of which stands for as many rows as the others.
    """

    rows: float
    points: tuple[tuple[KeyValue, ...], ...]


@dataclass(frozen=True, slots=True)
class LeafEstimate:
    """The row count of a leaf, and the keys of the files that were read."""

    rows: int
    files: tuple[FileKeys, ...]


def keys_of_sketches(file: DataFile, region: Region, sketches: Sequence[KeySketch]) -> FileKeys:
    """Returns the keys by the file's sketches, limited to the region field by field."""
    share = 1.0
    if not region.contains_bounds(file.smallest_key, file.largest_key):
        share = prod(s.share(r) for s, r in zip(sketches, region.ranges, strict=True))
    points = tuple(tuple(s.points(r)) for s, r in zip(sketches, region.ranges, strict=True))
    return FileKeys(file.rows * share, points)


def estimate_leaf(
    region: Region, seen: Sequence[tuple[DataFile, FileKeys]], unseen: Sequence[DataFile]
) -> LeafEstimate:
    """Returns the estimate, which assumes the same share of rows in unread files."""
    rows = sum(keys.rows for _, keys in seen)
    partial = [(f, k) for f, k in seen if not _is_inside(f, region)]
    partial_rows = sum(f.rows for f, _ in partial)
    share = sum(k.rows for _, k in partial) / partial_rows if partial_rows else 1.0
    rows += sum(f.rows if _is_inside(f, region) else f.rows * share for f in unseen)
    return LeafEstimate(round(rows), tuple(keys for _, keys in seen))


def split_points(
    estimate: LeafEstimate, within: Range, dimension: int, parts: int
) -> list[KeyValue]:
    """Returns at most `parts - 1` values that cut the range into parts of similar row counts.

    Empty if no value has rows on both sides.
    """
    weighted = [
        (point, keys.rows / len(keys.points[dimension]))
        for keys in estimate.files
        for point in keys.points[dimension]
        if keys.rows > 0
    ]
    if not weighted:
        return []
    # A cut at the lowest possible key leaves an empty part.
    lowest = weighted[0][0]
    for point, _ in weighted:
        lowest = point if precedes(point, lowest) else lowest
    inside = Range(lowest, within.max)
    quantiles = weighted_quantiles(weighted, [i / parts for i in range(1, parts)])
    cuts = distinct_inside(quantiles, inside)
    if cuts:
        return cuts
    # The lowest key has most rows, so the cut separates it from the keys above.
    return distinct_inside(sorted(point for point, _ in weighted), inside)[:1]


def _is_inside(file: DataFile, region: Region) -> bool:
    return region.contains_bounds(file.smallest_key, file.largest_key)


logger = logging.getLogger(__name__)
ReadObject = Callable[[str], bytes]
"""The content of an object, or NotFoundError."""
SampleKeys = Callable[[Schema, DataFile, Region], FileKeys]
"""Returns the keys of the file's rows in the region, read from the file."""


class LeafKeys:
    """The keys of the largest files of a leaf.

    Sidecars and files are read once, on first use.
    """

    def __init__(
        self,
        schema: Schema,
        leaf: Partition,
        files: Sequence[DataFile],
        files_max: int,
        read: ReadObject,
        sample: SampleKeys,
    ) -> None:
        by_size = sorted(files, key=lambda f: (-f.rows, f.path))
        self._looked_at, self._others = by_size[:files_max], by_size[files_max:]
        self._schema, self._leaf = schema, leaf
        self._read, self._sample = read, sample
        self._sketches: dict[str, Sequence[KeySketch] | None] = {}
        self._samples: dict[str, FileKeys] = {}
        self._is_warned = False

    def estimate(self, dimension: int) -> LeafEstimate:
        """Returns the estimate for the dimension, by sketches where they apply, else by samples."""
        seen = [(file, self._keys(file, dimension)) for file in self._looked_at]
        return estimate_leaf(self._leaf.region, seen, self._others)

    def sampled(self) -> LeafEstimate:
        """Returns the estimate by samples of the files, without sketches."""
        seen = [(file, self._sampled(file)) for file in self._looked_at]
        return estimate_leaf(self._leaf.region, seen, self._others)

    def _keys(self, file: DataFile, dimension: int) -> FileKeys:
        sketches = self._sketches_of(file)
        if sketches is None or not _tells(file, self._leaf.region, dimension):
            return self._sampled(file)
        return keys_of_sketches(file, self._leaf.region, sketches)

    def _sampled(self, file: DataFile) -> FileKeys:
        if file.path not in self._samples:
            self._samples[file.path] = self._sample(self._schema, file, self._leaf.region)
        return self._samples[file.path]

    def _sketches_of(self, file: DataFile) -> Sequence[KeySketch] | None:
        path = file.path + SKETCHES_SUFFIX
        if file.path not in self._sketches:
            try:
                found = sketches_from_bytes(self._schema, self._read(path), path)
            except (NotFoundError, DataError) as error:
                self._sketches[file.path] = None
                self._warn(error)
            else:
                self._sketches[file.path] = found
        return self._sketches[file.path]

    def _warn(self, error: Exception) -> None:
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "keys are sampled from the files where sidecars fail: %s",
                error,
                extra={"partition": self._leaf.id},
            )


def _tells(file: DataFile, region: Region, dimension: int) -> bool:
    """Returns whether the sketch of the dimension describes the file's rows in the region.

    It describes all rows of the file, so the other fields of all rows must be in the region.
    """
    bounds = zip(region.ranges, file.smallest_key, file.largest_key, strict=True)
    return all(r.contains_values(a, b) for i, (r, a, b) in enumerate(bounds) if i != dimension)
