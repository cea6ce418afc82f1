"""Runs one bulk import on a cluster: plans, lets it work, commits."""

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sleeper.bulk_import.exchange import SlotTarget
from sleeper.bulk_import.key_sample import (
    KeySample,
    SplitSample,
    joined_sample,
    keys_per_split,
)
from sleeper.bulk_import.slots import Slot, plan_slots
from sleeper.bulk_import.splits import InputSplit, plan_splits
from sleeper.clock import Clock
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.sidecars.sketches import distinct_inside, weighted_quantiles
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import UnavailableError
from sleeper.partitions.partition import MOST_LEVELS, Partition, subtree
from sleeper.schema.model import Key, Schema
from sleeper.statestore.commit_message import commit_until_known
from sleeper.statestore.file_commits import commit_files, find_earlier_commit
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.split_partition import SplitPartition
from sleeper.statestore.transactions.transaction import Status
from sleeper.storage.location import DataRoot
from sleeper.storage.s3_file import SourceFile

# Fewer rows do not pay for a file of their own.
_ROWS_PER_LEAF_MIN = 1_000
# A leaf is cut into 256 at once; another round cuts those again.
_ROUNDS_MAX = 3
_PARTS_MAX = 2**MOST_LEVELS
WeightedKeys = list[tuple[Key, float]]


def presplit(state: StateStore, sample: KeySample, leaves_min: int) -> list[Partition]:
    """The table's leaves, of which there are so many now if the sample has keys to cut at."""
    wanted = min(leaves_min, sample.rows // _ROWS_PER_LEAF_MIN)
    for _ in range(_ROUNDS_MAX):
        leaves = read_leaves(state)
        if len(leaves) >= wanted:
            return leaves
        splits = plan_presplit(leaves, sample, wanted)
        if not splits:
            return leaves
        outcomes = state.commit(*splits)
        done = sum(not outcome.refused for outcome in outcomes)
        logger.info("split %d of %d leaves before a bulk import", done, len(leaves))
    return read_leaves(state)


def read_leaves(state: StateStore) -> list[Partition]:
    """The table's leaves as they are now."""
    with state.reading() as now:
        return list(now.partitions.leaves())


def plan_presplit(
    leaves: Sequence[Partition], sample: KeySample, wanted: int
) -> list[SplitPartition]:
    """Splits after which there are about so many leaves, of like many of the sample's rows."""
    by_leaf = _keys_by_leaf(leaves, sample)
    rows = sum(weight for _, weight in sample.weighted)
    splits = []
    for leaf, keys in zip(leaves, by_leaf, strict=True):
        share = sum(weight for _, weight in keys) / rows if rows else 0.0
        parts = min(math.ceil(share * wanted), _PARTS_MAX)
        descendants = _cut(leaf, keys, parts) if parts > 1 else []
        if descendants:
            splits.append(SplitPartition(leaf.id, tuple(descendants)))
    return splits


def _cut(leaf: Partition, keys: WeightedKeys, parts: int) -> list[Partition]:
    """The partitions below the leaf, cut on the first field that has values to cut at."""
    ranks = [i / parts for i in range(1, parts)]
    for dimension, within in enumerate(leaf.region.ranges):
        points = [(key[dimension], weight) for key, weight in keys]
        lowest = min(value for value, _ in points)
        # A cut at the lowest key there is would leave nothing below it.
        quantiles = [q for q in weighted_quantiles(points, ranks) if q != lowest]
        cuts = distinct_inside(quantiles, within)
        if cuts:
            return subtree(leaf, dimension, cuts)
    return []


def _keys_by_leaf(leaves: Sequence[Partition], sample: KeySample) -> list[WeightedKeys]:
    """The sample's keys of each leaf. Those of a leaf ascend in the first field."""
    found: list[WeightedKeys] = [[] for _ in leaves]
    # Leaves that begin alike in the first field stand together, in the order of their ends.
    order = sorted(range(len(leaves)), key=lambda place: leaves[place].region.ranges[0].min)
    starts = [leaves[place].region.ranges[0].min for place in order]
    for key, weight in sample.weighted:
        at = bisect_right(starts, key[0]) - 1
        # Of leaves cut on a later field the one that holds the key may begin further down.
        while not leaves[order[at]].region.contains(key):
            at -= 1
        found[order[at]].append((key, weight))
    return found


logger = logging.getLogger(__name__)
# A slot is sorted without the disk if it takes a quarter of a task's memory, and may be half as
# large again as it is planned.
_SLOTS_IN_MEMORY = 7
_SLOTS_PER_TASK = 2
# Larger splits make fewer, larger pieces: two chunks each.
_SPLITS_IN_MEMORY = 4
_SLOT_ROWS_MIN = 50_000
StageHeard = Callable[[str], None]


def ignore_stage(_: str) -> None:
    pass


def _believe_it_is_there() -> None:
    pass


@dataclass(frozen=True, slots=True)
class BulkImportTable:
    """The table that rows go to; `engine` bounds each task. Offline tables are never split.

    `check_active` raises if the table was deleted meanwhile.
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
    check_active: Callable[[], None] = _believe_it_is_there


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the cluster is asked to move: the rows of all splits into the slots' files."""

    splits: tuple[InputSplit, ...]
    slots: tuple[Slot, ...]
    target: SlotTarget
    engine: EngineSettings


class Cluster(Protocol):
    """Runs tasks; those that die, again. What a task raises of `sleeper.errors` it raises too."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    def sample(
        self, splits: Sequence[InputSplit], schema: Schema, keys_max: int
    ) -> list[SplitSample]:
        """`sample_split` of each."""

    def write(self, exchange: Exchange) -> list[NewFile]:
        """`cut_split` of each split, then `write_slot` of what each task of a slot got.

        Gives the files of exactly one finished run of each task.
        """


OpenCluster = Callable[[], Cluster]
"""Starts it, which takes seconds, and is only done when there is something to do."""


@dataclass(frozen=True, slots=True)
class BulkImportResult:
    """What a bulk import did. `number` is its transaction; `done_before` if it came again."""

    job_id: str
    rows: int
    files: int
    number: int | None
    done_before: bool = False


def run_bulk_import(
    table: BulkImportTable,
    job_id: str,
    paths: Sequence[SourceFile],
    request: str,
    open_cluster: OpenCluster,
    on_stage: StageHeard = ignore_stage,
) -> BulkImportResult:
    """Takes in files on the cluster, in one commit under the job's id.

    InvalidRequestError if a file or a row does not fit, StateMovedOnError if the table is gone:
    then nothing was taken in.
    """
    with table.state.reading() as state:
        run_start_ms = state.run_start(table.clock())
    earlier = find_earlier_commit(table.state, job_id, request)
    if earlier is not None:
        return BulkImportResult(job_id, 0, 0, earlier.number, done_before=True)
    files = _write(table, paths, run_start_ms, open_cluster, on_stage)
    on_stage("commit")
    commit_until_known(table.check_active)
    outcome = commit_files(table.state, AddFiles(job_id, run_start_ms, tuple(files), request))
    if outcome.status is Status.ALREADY_DONE:
        return BulkImportResult(job_id, 0, 0, outcome.number, done_before=True)
    rows = sum(new.file.rows for new in files)
    return BulkImportResult(job_id, rows, len(files), outcome.number)


def _write(
    table: BulkImportTable,
    paths: Sequence[SourceFile],
    run_start_ms: int,
    open_cluster: OpenCluster,
    on_stage: StageHeard,
) -> list[NewFile]:
    on_stage("start")
    cluster = open_cluster()
    on_stage("plan")
    split_bytes = table.engine.memory_bytes // _SPLITS_IN_MEMORY
    splits = plan_splits(
        paths,
        table.schema,
        cluster.parallelism,
        split_bytes,
        table.refuses_extra_columns,
        table.engine.line_bytes_max,
    )
    if not splits:
        return []
    on_stage("sample")
    keys_max = keys_per_split(len(splits))
    sample = joined_sample(cluster.sample(splits, table.schema, keys_max))
    leaves = (
        presplit(table.state, sample, table.leaves_min)
        if table.is_online
        else read_leaves(table.state)
    )
    slots = plan_slots(leaves, sample, _slot_rows(sample, table.engine, cluster.parallelism))
    on_stage("write")
    target = SlotTarget(table.root, table.table_id, table.schema, run_start_ms, table.files)
    files = cluster.write(Exchange(splits, tuple(slots), target, table.engine))
    written = sum(new.file.rows for new in files)
    if written != sample.rows:
        raise UnavailableError(
            f"{written} rows were written of {sample.rows}: an input file has changed meanwhile"
        )
    return files


def _slot_rows(sample: KeySample, engine: EngineSettings, parallelism: int) -> float:
    """A slot's worth: as much as a task sorts in memory, or less where that keeps all busy."""
    bytes_per_row = max(sample.bytes / max(sample.rows, 1), 1.0)
    in_memory = engine.memory_bytes / _SLOTS_IN_MEMORY / bytes_per_row
    shared = max(sample.rows / (parallelism * _SLOTS_PER_TASK), _SLOT_ROWS_MIN)
    return min(in_memory, shared)
