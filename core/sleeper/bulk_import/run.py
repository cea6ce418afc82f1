"""Runs one bulk import: plans its work, executes it on a cluster, commits the files."""

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sleeper.bulk_import.exchange import SlotTarget
from sleeper.bulk_import.slots import Slot, plan_slots
from sleeper.bulk_import.splits import (
    InputSplit,
    KeySample,
    SplitSample,
    combine_samples,
    keys_per_split,
    plan_splits,
)
from sleeper.clock import Clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.sidecars.sketches import distinct_inside, weighted_quantiles
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import UnavailableError
from sleeper.partitions.partition import MOST_LEVELS, Partition, subtree
from sleeper.runs.commit import (
    begin_run,
    commit_files,
    commit_until_settled,
    find_earlier_commit,
)
from sleeper.schema.model import Key, Schema
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.statestore.transactions.partition_split import SplitPartition
from sleeper.statestore.transactions.transaction import Status
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.location import DataRoot
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

logger = logging.getLogger(__name__)
_ROWS_PER_LEAF_MIN = 1_000
# Each round cuts a leaf into at most 256.
_ROUNDS_MAX = 3
_PARTS_MAX = 2**MOST_LEVELS
# A slot takes about a seventh of a task's memory, so that a slot half as large again is still
# sorted without the disk, which needs a quarter.
_SLOTS_IN_MEMORY = 7
_SLOTS_PER_TASK = 2
# Splits of two chunks each, because larger splits make fewer, larger pieces.
_SPLITS_IN_MEMORY = 4
_SLOT_ROWS_MIN = 50_000
WeightedKeys = list[tuple[Key, float]]
OnStage = Callable[[str], None]


def presplit(
    state: StateStore, sample: KeySample, leaves_min: int, leaf_bytes_min: int = 0
) -> list[Partition]:
    """Splits the tree into at least `leaves_min` leaves where the sample allows. Returns them.

    A load of fewer than `leaf_bytes_min` bytes in memory per leaf makes fewer leaves.
    """
    target = min(leaves_min, sample.rows // _ROWS_PER_LEAF_MIN)
    if leaf_bytes_min:
        target = min(target, sample.bytes // leaf_bytes_min)
    for _ in range(_ROUNDS_MAX):
        leaves = read_leaves(state)
        if len(leaves) >= target:
            return leaves
        splits = plan_presplit(leaves, sample, target)
        if not splits:
            return leaves
        outcomes = state.commit(*splits)
        done = sum(not outcome.refused for outcome in outcomes)
        logger.info("split %d of %d leaves before a bulk import", done, len(leaves))
    return read_leaves(state)


def read_leaves(state: StateStore) -> list[Partition]:
    """Returns the table's current leaves."""
    with state.reading() as current:
        return list(current.partitions.leaves())


def plan_presplit(
    leaves: Sequence[Partition], sample: KeySample, target: int
) -> list[SplitPartition]:
    """Returns splits into about `target` leaves of equal numbers of the sample's rows."""
    by_leaf = _keys_by_leaf(leaves, sample)
    rows = sum(weight for _, weight in sample.weighted)
    splits = []
    for leaf, keys in zip(leaves, by_leaf, strict=True):
        share = sum(weight for _, weight in keys) / rows if rows else 0.0
        parts = min(math.ceil(share * target), _PARTS_MAX)
        descendants = _cut(leaf, keys, parts) if parts > 1 else []
        if descendants:
            splits.append(SplitPartition(leaf.id, tuple(descendants)))
    return splits


def _cut(leaf: Partition, keys: WeightedKeys, parts: int) -> list[Partition]:
    """Returns the partitions below the leaf, cut on the first field with several values."""
    ranks = [i / parts for i in range(1, parts)]
    for dimension, within in enumerate(leaf.region.ranges):
        points = [(key[dimension], weight) for key, weight in keys]
        lowest = min(value for value, _ in points)
        # A cut at the lowest key would leave an empty partition below it.
        quantiles = [q for q in weighted_quantiles(points, ranks) if q != lowest]
        cuts = distinct_inside(quantiles, within)
        if cuts:
            return subtree(leaf, dimension, cuts)
    return []


def _keys_by_leaf(leaves: Sequence[Partition], sample: KeySample) -> list[WeightedKeys]:
    """Returns the sample's keys of each leaf, ascending in the first field."""
    by_leaf: list[WeightedKeys] = [[] for _ in leaves]
    # Leaves with equal starts in the first field are adjacent, in the order of their ends.
    order = sorted(range(len(leaves)), key=lambda position: leaves[position].region.ranges[0].min)
    starts = [leaves[position].region.ranges[0].min for position in order]
    for key, weight in sample.weighted:
        at = bisect_right(starts, key[0]) - 1
        # For leaves cut on a later field, an earlier one may contain the key.
        while not leaves[order[at]].region.contains(key):
            at -= 1
        by_leaf[order[at]].append((key, weight))
    return by_leaf


def ignore_stage(_: str) -> None:
    """Ignores the name of a stage."""


@dataclass(frozen=True, slots=True)
class BulkImportTable:
    """The target table. `engine` limits each task. Offline tables are not split.

    `options` say how the job's files are read. `check_active` raises if the table was deleted.
    """

    table_id: str
    schema: Schema
    state: StateStore
    root: DataRoot
    engine: EngineSettings
    clock: Clock
    files: FileSettings = field(default_factory=FileSettings)
    leaves_min: int = 1
    is_online: bool = True
    refuses_extra_columns: bool = False
    check_active: Callable[[], None] = lambda: None
    options: SourceOptions = DEFAULT_OPTIONS
    leaf_bytes_min: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """The work of a cluster: the rows of all splits go to the slots' files."""

    splits: tuple[InputSplit, ...]
    slots: tuple[Slot, ...]
    target: SlotTarget
    engine: EngineSettings


class Cluster(Protocol):
    """Runs tasks, and retries those that die. Propagates errors of `sleeper.errors`."""

    @property
    def parallelism(self) -> int:
        """The number of concurrent tasks."""

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        """Returns `sample_split` of each split."""

    def write(self, exchange: Exchange) -> list[NewFile]:
        """Runs `cut_split` for each split, then `write_slot` for the pieces of each task.

        Returns the files of exactly one finished run of each task.
        """


FindFiles = Callable[[], Sequence[SourceFile]]
"""Writes or finds the files to import. Called when the run has begun and the cluster is open."""

OpenCluster = Callable[[], Cluster]
"""Starts a cluster, which takes seconds. Called only if there is work."""


@dataclass(frozen=True, slots=True)
class BulkImportResult:
    """The result of a bulk import. `number` is its transaction number, `bytes` are of the files.

    `done_before` is true if an earlier run of the job committed the rows.
    """

    job_id: str
    rows: int
    files: int
    number: int | None
    done_before: bool = False
    bytes: int = 0


def run_bulk_import(
    table: BulkImportTable,
    job_id: str,
    paths: Sequence[SourceFile] | FindFiles,
    request: str,
    open_cluster: OpenCluster,
    on_stage: OnStage = ignore_stage,
) -> BulkImportResult:
    """Imports files on the cluster, in one commit under the job's id.

    InvalidRequestError if a file or a row does not fit, StateMovedOnError if the table is gone.
    Errors leave the table unchanged.
    """
    earlier = find_earlier_commit(table.state, job_id, request)
    if earlier is not None:
        return BulkImportResult(job_id, 0, 0, earlier.number, done_before=True)
    start = begin_run(table.state, table.clock, job_id)
    files = _write(table, paths, start.ms, open_cluster, on_stage)
    on_stage("commit")
    commit_until_settled(table.check_active)
    outcome = commit_files(table.state, start.commit_of(job_id, tuple(files), request))
    if outcome.status is Status.ALREADY_DONE:
        return BulkImportResult(job_id, 0, 0, outcome.number, done_before=True)
    rows = sum(new.file.rows for new in files)
    size = sum(new.file.bytes for new in files)
    return BulkImportResult(job_id, rows, len(files), outcome.number, bytes=size)


def _write(
    table: BulkImportTable,
    paths: Sequence[SourceFile] | FindFiles,
    run_start_ms: int,
    open_cluster: OpenCluster,
    on_stage: OnStage,
) -> list[NewFile]:
    on_stage("start")
    cluster = open_cluster()
    if callable(paths):
        on_stage("read")
        paths = paths()
    on_stage("plan")
    split_bytes = table.engine.memory_bytes // _SPLITS_IN_MEMORY
    splits = plan_splits(
        paths,
        table.schema,
        cluster.parallelism,
        split_bytes,
        table.refuses_extra_columns,
        table.engine.line_bytes_max,
        table.options,
    )
    if not splits:
        return []
    on_stage("sample")
    keys_max = keys_per_split(len(splits))
    sample = combine_samples(cluster.sample(splits, table.schema, keys_max))
    leaves = (
        presplit(table.state, sample, table.leaves_min, table.leaf_bytes_min)
        if table.is_online
        else read_leaves(table.state)
    )
    is_latest = table.schema.latest is not None
    slot_rows = _slot_rows(sample, table.engine, cluster.parallelism)
    slots = plan_slots(leaves, sample, slot_rows, distributes=not is_latest)
    on_stage("write")
    target = SlotTarget(table.root, table.table_id, table.schema, run_start_ms, table.files)
    files = cluster.write(Exchange(splits, tuple(slots), target, table.engine))
    written = sum(new.file.rows for new in files)
    if written > sample.rows or (written < sample.rows and not is_latest):
        raise UnavailableError(
            f"an input file has changed: {written} rows written (expected {sample.rows})"
        )
    return files


def _slot_rows(sample: KeySample, engine: EngineSettings, parallelism: int) -> float:
    """Returns the rows per slot: what a task sorts in memory, or less to use every task."""
    bytes_per_row = max(sample.bytes / max(sample.rows, 1), 1.0)
    in_memory = engine.memory_bytes / _SLOTS_IN_MEMORY / bytes_per_row
    shared = max(sample.rows / (parallelism * _SLOTS_PER_TASK), _SLOT_ROWS_MIN)
    return min(in_memory, shared)
