"""Splits of the partitions of an instance's tables, by the keys of their leaves' files."""

import functools
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from sleeper.datafiles.leaf_keys import LeafEstimate, LeafKeys, split_points
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.files import DataFile
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import Message
from sleeper.partitions.partition import Partition, PartitionId, levels_needed, subtree
from sleeper.properties.instance import SKETCH_CACHE_BYTES, SPLITTING_FILES_MAX
from sleeper.properties.table import SPLIT_THRESHOLD_ROWS
from sleeper.schema.model import KeyValue, Schema
from sleeper.splitting.find import find_leaves
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.partition_split import MarkUnsplittable, SplitPartition
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot
from sleeper.tables import find_table

logger = logging.getLogger(__name__)


_POINTS_PER_PART_MIN = 8


class SplitStatus(Enum):
    """The result of an attempt to split a leaf."""

    SPLIT = "split"
    GONE = "no longer a leaf"
    SMALL_ENOUGH = "not over the threshold"
    UNSPLITTABLE = "no key cuts it"


@dataclass(frozen=True, slots=True)
class SplitResult:
    """`rows` are estimated from sketches; `leaves` counts the new leaves."""

    status: SplitStatus
    rows: int = 0
    leaves: int = 0


def split_partition(
    partition_id: PartitionId,
    store: StateStore,
    threshold: int,
    files_max: int,
    root: DataRoot,
    read: Callable[[str], bytes] | None = None,
) -> SplitResult:
    """Splits the leaf if it is over the threshold by the sketches of its files.

    Cuts the first row key field that has a suitable value, by the `files_max` largest files.
    `read` returns the content of a sidecar, by default from the root.
    Durable on return and idempotent. DataError if neither the sidecar nor the file has readable
    keys; StateMovedOnError if a file was collected meanwhile (retry).
    """
    leaf = _leaf(partition_id, store)
    if leaf is None:
        return SplitResult(SplitStatus.GONE)
    keys = LeafKeys(leaf.schema, leaf.partition.region, leaf.files, files_max, root, read)
    for dimension, within in enumerate(leaf.partition.region.ranges):
        estimate = _estimate(keys, dimension, threshold)
        levels = levels_needed(estimate.rows, threshold)
        if levels == 0:
            return SplitResult(SplitStatus.SMALL_ENOUGH, estimate.rows)
        points = split_points(estimate, within, dimension, 2**levels)
        if points:
            return _split(leaf, dimension, points, estimate.rows, store)
    return _mark_unsplittable(leaf, estimate.rows, store)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf and its files at a version."""

    partition: Partition
    schema: Schema
    files: Sequence[DataFile]
    version: int


def _leaf(partition_id: PartitionId, store: StateStore) -> _Leaf | None:
    with store.reading() as state:
        try:
            partition = state.partitions.get(partition_id)
        except NotFoundError:
            return None
        if not partition.is_leaf:
            return None
        files = state.files.leaf_files(partition_id, partition.region)
        return _Leaf(partition, state.schema, files, state.version)


def _estimate(keys: LeafKeys, dimension: int, threshold: int) -> LeafEstimate:
    estimate = keys.estimate(dimension)
    levels = levels_needed(estimate.rows, threshold)
    if levels and not _has_enough_points(estimate, dimension, 2**levels):
        return keys.sampled()
    return estimate


def _has_enough_points(estimate: LeafEstimate, dimension: int, parts: int) -> bool:
    """Returns whether there are enough points for quantiles: a small share of a file has few."""
    points = sum(len(keys.points[dimension]) for keys in estimate.files)
    return points >= parts * _POINTS_PER_PART_MIN


def _split(
    leaf: _Leaf, dimension: int, points: Sequence[KeyValue], rows: int, store: StateStore
) -> SplitResult:
    added = subtree(leaf.partition, dimension, points)
    try:
        store.commit_or_raise(SplitPartition(leaf.partition.id, tuple(added)))
    except StateMovedOnError:
        if _leaf(leaf.partition.id, store) is None:
            return SplitResult(SplitStatus.GONE, rows)
        raise
    leaves = sum(p.is_leaf for p in added)
    logger.info("partition split", extra={"partition": leaf.partition.id, "leaves": leaves})
    return SplitResult(SplitStatus.SPLIT, rows, leaves)


def _mark_unsplittable(leaf: _Leaf, rows: int, store: StateStore) -> SplitResult:
    (outcome,) = store.commit(MarkUnsplittable(leaf.partition.id, leaf.version))
    if outcome.refused:
        return SplitResult(SplitStatus.GONE, rows)
    logger.info("partition cannot be split", extra={"partition": leaf.partition.id})
    return SplitResult(SplitStatus.UNSPLITTABLE, rows)


def split_table(instance: Instance, name: str) -> list[SplitResult]:
    """Splits every leaf of the table that is over the threshold."""
    ref = instance.tables.index.find(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not split")
    table = OpenTable(instance, ref)
    return [_split_leaf(table, leaf) for leaf in find_leaves(table)]


def run_split_message(instance: Instance, body: str) -> SplitResult:
    """Splits the leaf of a message. InvalidRequestError if the message is invalid."""
    try:
        raw = json.loads(body)
        table_id, partition_id = str(raw["tableId"]), PartitionId(str(raw["partitionId"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"not a split: {body[:200]!r}: {error!r}") from error
    table = OpenTable(instance, find_table(instance.tables.index, None, table_id))
    if not table.ref.online:
        return SplitResult(SplitStatus.GONE)
    return _split_leaf(table, partition_id)


def run_queued_split(instance: Instance, message: Message, _task_id: str) -> tuple[int, int]:
    """Splits the leaf of a message. Returns no numbers of rows."""
    run_split_message(instance, message.body)
    return 0, 0


def _split_leaf(table: OpenTable, partition_id: PartitionId) -> SplitResult:
    root, properties = table.instance.storage.root, table.instance.properties()
    kept = _sketches(properties.get(SKETCH_CACHE_BYTES))
    return split_partition(
        partition_id,
        table.state,
        table.properties().get(SPLIT_THRESHOLD_ROWS),
        properties.get(SPLITTING_FILES_MAX),
        root,
        lambda path: kept.get(root.url_of(path), lambda: root.read(path)),
    )


@functools.lru_cache(maxsize=1)
def _sketches(bytes_max: int) -> BoundedCache[bytes]:
    """Returns the sketch cache of the process: the files of a growing leaf are read repeatedly."""
    return BoundedCache(bytes_max, len)
