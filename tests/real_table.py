"""A table of real Parquet files in a folder, with a clock, a queue and ports that can break.

Every call of a port is a *tick*. A test can have something happen just before a commit,
or have the process die at any tick, and look at the rows afterwards.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.compaction.job import CompactionJob, compaction_job_from_json
from sleeper.compaction.plan import CreationReport, create_compaction_jobs
from sleeper.compaction.run import CompactionResult, CompactionSettings, run_compaction
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.merge.plan import MergeInput, MergeRequest, merge
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import SleeperError, StateMovedOnError
from sleeper.files import DataFile, StoredObject
from sleeper.garbage_collection.collection import CollectionReport, collect_garbage
from sleeper.garbage_collection.orphans import OrphanReport, collect_orphans
from sleeper.jobs.event import JobEvent
from sleeper.local.database import InstanceDatabase
from sleeper.local.folder import create_instance_folder
from sleeper.local.state_store import open_state_store
from sleeper.local.trackers import LocalJobTracker
from sleeper.partitions.partition import (
    ROOT_PARTITION_ID,
    Partition,
    PartitionId,
    split_region,
    tree_from_split_points,
)
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.processing.text import processing_to_json
from sleeper.properties.values import TableProperties, instance_properties, table_properties
from sleeper.schema.json import schema_to_json
from sleeper.schema.model import Field, Key, PrimitiveType, Schema
from sleeper.splitting.find import find_partitions_to_split
from sleeper.splitting.key_samples import sample_keys
from sleeper.splitting.run import SplitResult, split_partition
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.split_partition import SplitPartition
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId
from tests.clock import FakeClock

TABLE_ID = TableId("0a1b2c3d")
# A data file and its sidecars.
OBJECTS_PER_FILE = 4
LONG_SCHEMA = Schema((Field("key", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))


class Killed(BaseException):
    """The process dies: nothing catches this."""


@dataclass
class Ticks:
    """Counts port calls, and dies at one of them."""

    count: int = 0
    die_at: int | None = None

    def __call__(self) -> None:
        self.count += 1
        if self.count - 1 == self.die_at:
            raise Killed


class WatchedStore:
    """A state store whose commits tick before and after, and can be preceded by anything."""

    def __init__(self, inner: StateStore, ticks: Ticks) -> None:
        self._inner = inner
        self._ticks = ticks
        self.before_commit: list[tuple[type[Transaction], Callable[[], object]]] = []
        self.committed: list[Transaction] = []

    def commit(self, *transactions: Transaction) -> list[Outcome]:
        for kind, action in list(self.before_commit):
            if any(isinstance(t, kind) for t in transactions):
                self.before_commit.remove((kind, action))
                action()
        self._ticks()
        outcomes = self._inner.commit(*transactions)
        self.committed += transactions
        self._ticks()
        return outcomes

    def commit_or_raise(self, transaction: Transaction) -> int | None:
        (outcome,) = self.commit(transaction)
        if outcome.refused:
            raise StateMovedOnError(f"{transaction.kind} {transaction.id}: {outcome.reason}")
        return outcome.number

    @contextlib.contextmanager
    def reading(self, version: int | None = None) -> Iterator[TableState]:
        self._ticks()
        with self._inner.reading(version) as state:
            yield state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedRoot(DataRoot):
    """A data root whose writes and deletions tick; a torn write leaves half an object."""

    def __init__(self, place: Path | Bucket, ticks: Ticks) -> None:
        super().__init__(place)
        self.folder = Path(self.url_of(""))
        self._ticks = ticks

    @contextlib.contextmanager
    def sink(self, path: str) -> Iterator[Any]:
        self._ticks()
        with super().sink(path) as sink:
            yield sink
        self._ticks()

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._ticks()
            super().delete([path])

    def objects(self, table_id: TableId = TABLE_ID) -> list[StoredObject]:
        """Every object below the table's folder, as a listing has it."""
        self._ticks()
        return sorted(self.list_objects(table_id), key=lambda each: each.path)


class WatchedTracker(LocalJobTracker):
    """A job tracker whose writes tick."""

    def __init__(self, database: InstanceDatabase, ticks: Ticks) -> None:
        super().__init__(database)
        self._ticks = ticks

    def record(self, *events: JobEvent) -> None:
        self._ticks()
        super().record(*events)
        self._ticks()


@dataclass
class RealTable:
    """One table of a local instance. `messages` are those on the compaction queue.

    Its data is in the folder too, or in a bucket that is given.
    """

    folder: Path
    schema: Schema = LONG_SCHEMA
    split_points: Sequence[Any] = ()
    properties_set: dict[str, str] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    ticks: Ticks = field(default_factory=Ticks)
    messages: list[str] = field(default_factory=list)
    engine_changes: dict[str, Any] = field(default_factory=dict)
    processing: Processing = NO_PROCESSING
    bucket: Bucket | None = None

    def __post_init__(self) -> None:
        self._databases: list[InstanceDatabase] = []
        self._stores: list[StateStore] = []
        self._names = itertools.count()
        spill = self.folder / "spill"
        spill.mkdir()
        buckets = (self.bucket,) if self.bucket else ()
        self.engine = EngineSettings(
            spill, 256 * 1024**2, **{"buckets": buckets, **self.engine_changes}
        )
        instance = create_instance_folder(self.folder / "instance", "test")
        self._database_path = instance.database.path
        instance.close()
        self.open_again()
        tree = tree_from_split_points(self.schema, self.split_points)
        processing_json = processing_to_json(self.processing)
        self.store.commit_or_raise(
            InitialiseTable(schema_to_json(self.schema), tuple(tree), processing_json)
        )

    def open_again(self) -> None:
        """Opens everything as a new process would, which is never killed."""
        self.ticks = Ticks()
        self._databases.append(InstanceDatabase(self._database_path))
        self.tracker = WatchedTracker(self._databases[-1], self.ticks)
        self.root = WatchedRoot(self.bucket or self.folder / "data", self.ticks)
        path = self.folder / "data" / TABLE_ID / "state.db"
        self._stores.append(open_state_store(path, self.clock))
        self.watched = WatchedStore(self._stores[-1], self.ticks)

    def close(self) -> None:
        for opened in [*self._databases, *self._stores]:
            opened.close()

    @property
    def store(self) -> StateStore:
        return self.watched  # type: ignore[return-value]

    @property
    def properties(self) -> TableProperties:
        needed = {
            "sleeper.table.name": "t",
            "sleeper.table.id": TABLE_ID,
            "sleeper.table.schema": schema_to_json(self.schema),
        }
        instance = {k: v for k, v in self.properties_set.items() if "sleeper.table." not in k}
        of_table = {k: v for k, v in self.properties_set.items() if "sleeper.table." in k}
        return table_properties(
            {**needed, **of_table}, instance_properties({"sleeper.id": "x", **instance})
        )

    def set(self, **values: object) -> "RealTable":
        """Properties by name, with two underscores for a dot."""
        self.properties_set |= {k.replace("__", "."): str(v) for k, v in values.items()}
        return self

    # What the product does

    def ingest(
        self,
        keys: Sequence[Any],
        *,
        strategy: FileStrategy = FileStrategy.ONE_REFERENCE_PER_LEAF,
        into: PartitionId | None = None,
        row_group_rows: int = 100_000,
        turn_rows: int | None = None,
    ) -> list[DataFile]:
        """Writes the rows of these keys (tuples if there are several) to the leaves.

        `turn_rows` is how many come at a time. `into` writes to one partition, as an ingest
        does that began before it was split.
        """
        name = next(self._names)
        tuples = sorted(k if isinstance(k, tuple) else (k,) for k in keys)
        columns = [list(c) for c in zip(*tuples, strict=True)]
        values = [f"ingest-{name}-{i}" for i in range(len(tuples))]
        table = pa.table([*columns, values], schema=arrow_schema(self.schema))
        return self.ingest_sorted(table, strategy, into, row_group_rows, turn_rows)

    def ingest_sorted(
        self,
        table: pa.Table,
        strategy: FileStrategy = FileStrategy.ONE_REFERENCE_PER_LEAF,
        into: PartitionId | None = None,
        row_group_rows: int = 100_000,
        turn_rows: int | None = None,
    ) -> list[DataFile]:
        """Writes rows that are in key order."""
        with self.store.reading() as state:
            leaves = list(state.partitions.leaves())
            if into is not None:
                leaves = [state.partitions.get(into)]
        settings = FileSettings(row_group_rows_max=row_group_rows)
        target = WriteTarget(
            self.root, TABLE_ID, self.schema, leaves, self.clock(), settings, threads=1
        )
        written = write_sorted(iter(table.to_batches(turn_rows)), target, strategy)
        files = tuple(
            NewFile(w.file, tuple((r.partition_id, r.rows) for r in w.references)) for w in written
        )
        name = f"ingest-{next(self._names)}"
        self.store.commit_or_raise(AddFiles(name, self.clock(), files))
        return [w.file for w in written]

    def create_jobs(self, full: bool = False) -> CreationReport:
        return create_compaction_jobs(
            TABLE_ID,
            self.store,
            self.properties,
            self.tracker,
            self.send,
            self.clock,
            full=full,
        )

    def send(self, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.ticks()
            self.messages.append(body)
        self.ticks()

    def jobs_sent(self) -> list[CompactionJob]:
        return [compaction_job_from_json(m) for m in self.messages]

    def run(self, job: CompactionJob, lease_seconds: float = 3600) -> CompactionResult:
        settings = CompactionSettings(
            self.engine, FileSettings(), lease_seconds=lease_seconds, task_id="task"
        )
        return run_compaction(job, self.store, self.root, self.tracker, settings, self.clock)

    def run_all(self) -> list[CompactionResult | SleeperError]:
        """Takes each message off the queue when its run has ended, one way or the other."""
        results: list[CompactionResult | SleeperError] = []
        while self.messages:
            try:
                results.append(self.run(compaction_job_from_json(self.messages[0])))
            except SleeperError as error:
                results.append(error)
            self.messages.pop(0)
        return results

    def compact(self, full: bool = False) -> list[CompactionResult | SleeperError]:
        self.create_jobs(full)
        return self.run_all()

    def split(
        self, partition: PartitionId = ROOT_PARTITION_ID, threshold: int = 100, files_max: int = 50
    ) -> SplitResult:
        return split_partition(
            partition,
            self.store,
            threshold,
            files_max,
            self.root.read,
            lambda schema, file, region: sample_keys(self.root, schema, file, region),
        )

    def split_all(self, threshold: int) -> None:
        with self.store.reading() as state:
            found = find_partitions_to_split(state, threshold)
        for each in found:
            self.split(each.partition_id, threshold)

    def split_at(self, partition: PartitionId, point: Any) -> tuple[PartitionId, PartitionId]:
        """Splits a leaf there on the first field, however many rows it has."""
        return self.split_at_field(partition, 0, point)

    def split_at_field(
        self, partition: PartitionId, dimension: int, point: Any
    ) -> tuple[PartitionId, PartitionId]:
        """Splits a leaf on any field, however many rows it has."""
        with self.store.reading() as state:
            region = state.partitions.get(partition).region
        ids = (PartitionId(f"{partition}L"), PartitionId(f"{partition}R"))
        halves = split_region(region, dimension, point)
        parts = [Partition(i, half, partition) for i, half in zip(ids, halves, strict=True)]
        self.store.commit_or_raise(SplitPartition(partition, tuple(parts)))
        return ids

    def collect(self, dry_run: bool = False) -> CollectionReport:
        return collect_garbage(
            TABLE_ID, self.store, self.properties, self.root.delete, self.clock, dry_run
        )

    def collect_orphans(self, dry_run: bool = False) -> OrphanReport:
        return collect_orphans(
            TABLE_ID,
            self.store,
            self.properties,
            self.root.objects,
            self.root.delete,
            self.clock,
            dry_run,
        )

    # What a test looks at

    def rows(self, version: int | None = None) -> list[tuple[Any, ...]]:
        """Every row that a query of everything gives at the version, in order."""
        found: list[tuple[Any, ...]] = []
        with self.store.reading(version) as state:
            per_leaf = [
                (p, state.files.leaf_files(p.id, p.region)) for p in state.partitions.leaves()
            ]
        for leaf, files in per_leaf:
            inputs = tuple(MergeInput(self.root.url_of(f.path), (leaf.region,)) for f in files)
            if inputs:
                for batch in merge(MergeRequest(self.schema, inputs), self.engine):
                    found += [tuple(row.values()) for row in batch.to_pylist()]
        return sorted(found)

    def row_keys(self, version: int | None = None) -> list[Key]:
        dimensions = len(self.schema.row_keys)
        return [row[:dimensions] for row in self.rows(version)]

    def files(self) -> list[DataFile]:
        with self.store.reading() as state:
            return list(state.files.all())

    def leaves(self) -> list[Partition]:
        with self.store.reading() as state:
            return list(state.partitions.leaves())

    def assigned(self) -> list[str]:
        with self.store.reading() as state:
            return [job.id for job in state.jobs.assigned()]

    def paths_on_disk(self) -> list[str]:
        """Data files and sidecars that are there."""
        return [o.path for o in self.root.objects() if "/data/" in o.path]

    def number(self) -> int:
        with self.store.reading() as state:
            return state.number
