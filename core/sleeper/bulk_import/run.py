"""Runs one bulk import on a cluster: plans, lets it work, commits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sleeper.bulk_import.key_sample import (
    KeySample,
    SplitSample,
    joined_sample,
    keys_per_split,
)
from sleeper.bulk_import.presplit import presplit, read_leaves
from sleeper.bulk_import.slot_write import SlotTarget
from sleeper.bulk_import.slots import Slot, plan_slots
from sleeper.bulk_import.splits import InputSplit, plan_splits
from sleeper.clock import Clock
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.session import EngineSettings
from sleeper.datafiles.sources import SourceFile
from sleeper.datafiles.writer import FileSettings
from sleeper.errors import UnavailableError
from sleeper.schema.model import Schema
from sleeper.statestore.file_commits import commit_files, earlier_commit
from sleeper.statestore.outcome import Status
from sleeper.statestore.run_commit import commit_until_known
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile

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
    earlier = earlier_commit(table.state, job_id, request)
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
