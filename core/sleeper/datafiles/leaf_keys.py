"""Estimates of the rows and keys of a leaf, or another region, and the values that divide it.

The keys come from the sketches of the files. If a sidecar is missing, torn or too coarse, they
are sampled from the file: only row groups whose statistics touch the region are read, at most so
many of them, evenly spaced, and of these only the key columns.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.key_values import key_statistics
from sleeper.datafiles.sidecars.checksum import verify_end
from sleeper.datafiles.sidecars.sketches import (
    KeySketch,
    distinct_inside,
    sketches_from_bytes,
    weighted_quantiles,
)
from sleeper.datafiles.write.key_facts import KeySampler
from sleeper.datafiles.write.route import rows_in_region
from sleeper.errors import DataError, NotFoundError, StateMovedOnError, classify_error
from sleeper.files import SKETCHES_SUFFIX, DataFile
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import KeyValue, Schema, precedes
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_ROW_GROUPS_MAX = 64
_BATCH_ROWS = 65_536


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


class LeafKeys:
    """The keys of the `files_max` largest files of a leaf, or of another region.

    Sidecars and files are read once, on first use. `read` returns the content of an object, or
    raises NotFoundError; a caller with a cache passes its own.
    """

    def __init__(
        self,
        schema: Schema,
        region: Region,
        files: Sequence[DataFile],
        files_max: int,
        root: DataRoot,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        self.region = region
        self.files = sorted(files, key=lambda f: (-f.rows, f.path))
        self._read_files, self._others = self.files[:files_max], self.files[files_max:]
        self._schema = schema
        self._root, self._read = root, read or root.read
        self._sketches: dict[str, Sequence[KeySketch] | None] = {}
        self._samples: dict[str, FileKeys] = {}
        self._is_warned = False

    def estimate(self, dimension: int) -> LeafEstimate:
        """Returns the estimate for the dimension, by sketches where they apply, else by samples."""
        seen = [(file, self._keys(file, dimension)) for file in self._read_files]
        return estimate_leaf(self.region, seen, self._others)

    def sampled(self) -> LeafEstimate:
        """Returns the estimate by samples of the files, without sketches."""
        seen = [(file, self._sampled(file)) for file in self._read_files]
        return estimate_leaf(self.region, seen, self._others)

    def _keys(self, file: DataFile, dimension: int) -> FileKeys:
        sketches = self._sketches_of(file)
        if sketches is None or not _describes(file, self.region, dimension):
            return self._sampled(file)
        return keys_of_sketches(file, self.region, sketches)

    def _sampled(self, file: DataFile) -> FileKeys:
        if file.path not in self._samples:
            self._samples[file.path] = sample_keys(self._root, self._schema, file, self.region)
        return self._samples[file.path]

    def _sketches_of(self, file: DataFile) -> Sequence[KeySketch] | None:
        path = file.path + SKETCHES_SUFFIX
        if file.path not in self._sketches:
            try:
                result = sketches_from_bytes(self._schema, self._read(path), path)
            except (NotFoundError, DataError) as error:
                self._sketches[file.path] = None
                if not self._is_warned:
                    self._is_warned = True
                    logger.warning("sampling keys from files, because a sidecar failed: %s", error)
            else:
                self._sketches[file.path] = result
        return self._sketches[file.path]


def _describes(file: DataFile, region: Region, dimension: int) -> bool:
    """Returns whether the sketch of the dimension describes the file's rows in the region.

    It describes all rows of the file, so the other fields of all rows must be in the region.
    """
    bounds = zip(region.ranges, file.smallest_key, file.largest_key, strict=True)
    return all(r.contains_values(a, b) for i, (r, a, b) in enumerate(bounds) if i != dimension)


def sample_keys(root: DataRoot, schema: Schema, file: DataFile, region: Region) -> FileKeys:
    """Samples the keys of the file's rows in the region. `rows` is exact if all are read.

    DataError if the file cannot be read, StateMovedOnError if it is gone.
    """
    sampler = KeySampler(schema)
    try:
        verify_end(root, file.path)
        with (
            root.open(file.path, file.bytes) as content,
            pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as parquet,
        ):
            groups = _row_groups_touching(parquet.metadata, region)
            read = _evenly_spaced(groups)
            rows = _sample(parquet, read, schema, region, sampler)
        points = tuple(tuple(_in_order(values)) for values in sampler.samples())
    except FileNotFoundError as error:
        raise StateMovedOnError(f"data file {file.path} is missing") from error
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise classify_error(
            error, f"data file {file.path} cannot be read: {error}", DataError
        ) from error
    scale = len(groups) / len(read) if read else 0.0
    return FileKeys(rows * scale, points)


def _in_order(values: list[KeyValue]) -> list[KeyValue]:
    return sorted(values)


def _sample(
    parquet: pq.ParquetFile,
    groups: Sequence[int],
    schema: Schema,
    region: Region,
    sampler: KeySampler,
) -> int:
    rows = 0
    names = [f.name for f in schema.row_keys]
    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=names):
        # The columns of the file may be in another order.
        keys = pa.RecordBatch.from_arrays([batch.column(n) for n in names], names)
        inside = rows_in_region(keys, names, region)
        rows += inside.num_rows
        if inside.num_rows:
            sampler.add(inside)
    return rows


def _row_groups_touching(metadata: pq.FileMetaData, region: Region) -> list[int]:
    """Returns the row groups that may have rows of the region."""
    groups = range(metadata.num_row_groups)
    return [g for g in groups if _touches(metadata.row_group(g), region)]


def _touches(group: pq.RowGroupMetaData, region: Region) -> bool:
    # The row key fields are a file's first columns.
    for index, within in enumerate(region.ranges):
        result = group.column(index).statistics
        bounds = None if result is None else key_statistics(result)
        if (
            bounds is not None
            and type(bounds[0]) is type(within.min)
            and not within.overlaps_values(*bounds)
        ):
            return False
    return True


def _evenly_spaced(groups: Sequence[int]) -> list[int]:
    if len(groups) <= _ROW_GROUPS_MAX:
        return list(groups)
    return [groups[i * len(groups) // _ROW_GROUPS_MAX] for i in range(_ROW_GROUPS_MAX)]
