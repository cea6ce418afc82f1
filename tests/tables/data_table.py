"""A table of Parquet files in a folder, with a fake clock, a job queue and ports that can fail.

A test builds the table with `add_rows` (rows it knows) or `ingest` (keys), changes it with the
product's own workflows, and compares its rows. It can run an action before a commit, or kill the
process at any call of a port (`sleeper` never catches `Killed`).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.compaction.job import CompactionJob, parse_compaction_job
from sleeper.compaction.plan import CreationReport, create_compaction_jobs
from sleeper.compaction.run import CompactionResult, CompactionSettings, run_compaction
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import SleeperError, StateMovedOnError
from sleeper.files import DataFile, new_data_path
from sleeper.garbage_collection.collection import CollectionReport, collect_garbage, leave_held
from sleeper.garbage_collection.orphans import OrphanReport, collect_orphans
from sleeper.local.database import InstanceDatabase
from sleeper.local.folder import create_instance_folder
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import (
    ROOT_PARTITION_ID,
    Partition,
    PartitionId,
    tree_from_split_points,
)
from sleeper.processing.model import NO_PROCESSING, Processing
from sleeper.processing.text import processing_to_json
from sleeper.properties.values import TableProperties, instance_properties, table_properties
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.schema.model import Field, Key, PrimitiveType, Schema, schema_to_json
from sleeper.splitting.find import find_partitions_to_split
from sleeper.splitting.service import SplitResult, split_partition
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
)
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.storage.bucket import Bucket
from tests.clock import FakeClock
from tests.tables.state_table import TableBuilder
from tests.tables.watched_ports import TABLE_ID, Ticks, WatchedRoot, WatchedStore, WatchedTracker

# The data file and its sidecars.
OBJECTS_PER_FILE = 4
Row = tuple[Any, ...]
_SMALL_GROUPS = FileSettings(row_group_rows_max=1000, page_bytes=1024)
LONG_SCHEMA = Schema((Field("key", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))


@dataclass
class DataTable(TableBuilder):
    """One table of a local instance; `messages` are the bodies on its compaction queue.

    Its files are in `folder`, or in `bucket` if that is set. `expected_rows` are the rows that
    `add_rows` added, `expected_versions` those of each version that the table itself committed.
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
    file_settings: FileSettings = _SMALL_GROUPS
    expected_rows: list[Row] = field(default_factory=list)
    expected_versions: dict[int, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._databases: list[InstanceDatabase] = []
        self._stores: list[StateStore] = []
        self._names = itertools.count()
        spill = self.folder / "spill"
        spill.mkdir(parents=True, exist_ok=True)
        buckets = (self.bucket,) if self.bucket else ()
        self.engine = EngineSettings(
            spill, 256 * 1024**2, **{"buckets": buckets, **self.engine_changes}
        )
        instance = create_instance_folder(self.folder / "instance", "test")
        self._database_path = instance.database.path
        instance.close()
        self.reopen()
        tree = tree_from_split_points(self.schema, self.split_points)
        processing_json = processing_to_json(self.processing)
        self._commit(InitialiseTable(schema_to_json(self.schema), tuple(tree), processing_json))

    def reopen(self) -> None:
        """Opens the instance as a new process does, with a new tick count."""
        self.ticks = Ticks()
        self._databases.append(InstanceDatabase(self._database_path))
        self.tracker = WatchedTracker(self._databases[-1], self.ticks)
        self.root = WatchedRoot(self.bucket or self.folder / "data", self.ticks)
        self._stores.append(open_state_store(self.state_path, self.clock))
        self.watched = WatchedStore(self._stores[-1], self.ticks)

    def close(self) -> None:
        for resource in [*self._databases, *self._stores]:
            resource.close()

    @property
    def state_path(self) -> Path:
        return self.folder / "data" / TABLE_ID / "state.db"

    @property
    def store(self) -> StateStore:
        return self.watched  # type: ignore[return-value]

    @property
    def query_table(self) -> QueryTable:
        return QueryTable("t", self.store, self.root)

    @property
    def properties(self) -> TableProperties:
        required = {
            "sleeper.table.name": "t",
            "sleeper.table.id": TABLE_ID,
            "sleeper.table.schema": schema_to_json(self.schema),
        }
        instance_values = {"sleeper.id": "x"}
        table_values = {}
        for name, value in self.properties_set.items():
            (table_values if "sleeper.table." in name else instance_values)[name] = value
        return table_properties(
            {**required, **table_values},
            instance_properties(instance_values),
        )

    def set(self, **values: object) -> "DataTable":
        """Sets properties by name, with two underscores for a dot."""
        self.properties_set |= {k.replace("__", "."): str(v) for k, v in values.items()}
        return self

    # Steps with known rows

    def add_rows(
        self, rows: Sequence[Row], partition_id: PartitionId | None = None
    ) -> DataFile | None:
        """Adds one file with the rows of the partition, or with rows of all leaves.

        Returns None if no row is in their regions.
        """
        partitions = [p for p in self.partitions() if p.id == partition_id] or self.leaves()
        counts = [(p.id, sum(p.region.contains(self._key(r)) for r in rows)) for p in partitions]
        rows = [r for r in rows if any(p.region.contains(self._key(r)) for p in partitions)]
        if not rows:
            return None
        file = self._write(rows, partitions[0].id)
        self.expected_rows += rows
        references = tuple((i, n) for i, n in counts if n)
        self._commit(AddFiles(self._next_job_id(), self.clock(), (NewFile(file, references),)))
        return file

    def compact_partition(self, partition: Partition) -> list[str]:
        """Merges the partition's own files into one; returns the input files."""
        with self.store.reading() as state:
            inputs = tuple(
                sorted(r.path for r in state.files.references() if r.partition_id == partition.id)
            )
        if inputs:
            rows = [row for path in inputs for row in self._read(path, partition)]
            self._replace(partition.id, inputs, self._write(rows, partition.id) if rows else None)
        return list(inputs)

    def replace_files(self, output: DataFile) -> None:
        """Commits a compaction of all files of the only leaf into an existing file."""
        (leaf,) = self.leaves()
        self._replace(leaf.id, tuple(sorted(f.path for f in self.files())), output)

    def remove_unreferenced_files(self, *, delete_objects: bool = True) -> list[str]:
        """Collects the unreferenced files of any age; returns their paths."""
        with self.store.reading() as state:
            files = state.collection.unreferenced(2**60, 1000)
        paths = [f.path for f in files]
        if files:
            horizon = max(f.unreferenced for f in files)
            if len(leave_held(self.store, files, horizon)) < len(files):
                raise StateMovedOnError("a hold needs files")
            self._commit(CollectFiles(tuple(paths), horizon))
            if delete_objects:
                self.root.delete(paths)
        return paths

    def _commit(self, transaction: Transaction) -> int:
        number = super()._commit(transaction)
        self.expected_versions[number] = list(self.expected_rows)
        return number

    def _next_job_id(self) -> str:
        return f"job-{next(self._names)}"

    def _replace(
        self, partition_id: PartitionId, inputs: tuple[str, ...], output: DataFile | None
    ) -> None:
        job_id = self._next_job_id()
        lease_end_ms = self.clock() + 10**7
        self._commit(AssignFiles((JobAssignment(job_id, partition_id, inputs, lease_end_ms),)))
        self._commit(CommitCompaction(job_id, partition_id, inputs, output, self.clock()))

    def _write(self, rows: Sequence[Row], partition_id: PartitionId) -> DataFile:
        schema = arrow_schema(self.schema)
        key_count = len(self.schema.keys)
        columns = zip(*sorted(rows, key=lambda r: r[:key_count]), strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        path = new_data_path("table", partition_id, self.clock())
        writer = DataFileWriter(self.root, path, self.schema, self.file_settings)
        writer.write([pa.RecordBatch.from_arrays(arrays, schema=schema)])
        return writer.finish()

    def _read(self, path: str, partition: Partition) -> list[Row]:
        rows = list_rows(pq.read_table(self.root.url_of(path)))
        return [r for r in rows if partition.region.contains(self._key(r))]

    def _key(self, row: Row) -> Row:
        return row[: len(self.schema.row_keys)]

    # The product's workflows

    def ingest(
        self,
        keys: Sequence[Any],
        *,
        strategy: FileStrategy = FileStrategy.ONE_REFERENCE_PER_LEAF,
        partition_id: PartitionId | None = None,
        row_group_rows: int = 100_000,
        batch_rows: int | None = None,
    ) -> list[DataFile]:
        """Writes the rows of these keys (tuples if there are several) to the leaves.

        `batch_rows` is the size of the input batches. `partition_id` writes to one partition, as
        an ingest does that began before the partition was split.
        """
        name = next(self._names)
        tuples = sorted(k if isinstance(k, tuple) else (k,) for k in keys)
        columns = [list(c) for c in zip(*tuples, strict=True)]
        values = [f"ingest-{name}-{i}" for i in range(len(tuples))]
        table = pa.table([*columns, values], schema=arrow_schema(self.schema))
        return self.ingest_sorted(table, strategy, partition_id, row_group_rows, batch_rows)

    def ingest_sorted(
        self,
        table: pa.Table,
        strategy: FileStrategy = FileStrategy.ONE_REFERENCE_PER_LEAF,
        partition_id: PartitionId | None = None,
        row_group_rows: int = 100_000,
        batch_rows: int | None = None,
    ) -> list[DataFile]:
        """Writes rows that are in key order."""
        with self.store.reading() as state:
            leaves = list(state.partitions.leaves())
            if partition_id is not None:
                leaves = [state.partitions.get(partition_id)]
        settings = FileSettings(row_group_rows_max=row_group_rows)
        target = WriteTarget(
            self.root, TABLE_ID, self.schema, leaves, self.clock(), settings, threads=1
        )
        results = write_sorted(iter(table.to_batches(batch_rows)), target, strategy)
        files = tuple(
            NewFile(w.file, tuple((r.partition_id, r.rows) for r in w.references)) for w in results
        )
        name = f"ingest-{next(self._names)}"
        self.store.commit_or_raise(AddFiles(name, self.clock(), files))
        return [w.file for w in results]

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

    def sent_jobs(self) -> list[CompactionJob]:
        return [parse_compaction_job(m) for m in self.messages]

    def run(self, job: CompactionJob, lease_seconds: float = 3600) -> CompactionResult:
        settings = CompactionSettings(
            self.engine, FileSettings(), lease_seconds=lease_seconds, task_id="task"
        )
        return run_compaction(job, self.store, self.root, self.tracker, settings, self.clock)

    def run_all(self) -> list[CompactionResult | SleeperError]:
        """Runs every job on the queue; a job that fails is removed from it too."""
        results: list[CompactionResult | SleeperError] = []
        while self.messages:
            try:
                results.append(self.run(parse_compaction_job(self.messages[0])))
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
            self.root,
        )

    def split_all(self, threshold: int) -> None:
        with self.store.reading() as state:
            candidates = find_partitions_to_split(state, threshold)
        for candidate in candidates:
            self.split(candidate.partition_id, threshold)

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

    # The state for a test to check

    def rows(self, version: int | None = None) -> list[Row]:
        """Returns all rows at the version, sorted."""
        rows: list[Row] = []
        with self.store.reading(version) as state:
            per_leaf = [
                (p, state.files.leaf_files(p.id, p.region)) for p in state.partitions.leaves()
            ]
        for leaf, files in per_leaf:
            inputs = tuple(MergeInput(self.root.url_of(f.path), (leaf.region,)) for f in files)
            if inputs:
                for batch in merge(MergeRequest(self.schema, inputs), self.engine):
                    rows += [tuple(row.values()) for row in batch.to_pylist()]
        return sorted(rows)

    def row_keys(self, version: int | None = None) -> list[Key]:
        dimensions = len(self.schema.row_keys)
        return [row[:dimensions] for row in self.rows(version)]

    def assigned(self) -> list[str]:
        with self.store.reading() as state:
            return [job.id for job in state.jobs.assigned()]

    def paths_on_disk(self) -> list[str]:
        """Lists the data files and sidecars in the folder or bucket."""
        return [o.path for o in self.root.objects() if "/data/" in o.path]


def make_engine(folder: Path, **settings: Any) -> QueryEngine:
    """Makes a query engine that spills to the folder.

    `settings` are fields of `QuerySettings` or of its `EngineSettings`.
    """
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    query_fields = {f.name for f in fields(QuerySettings)} - {"engine"}
    query_settings = {k: settings.pop(k) for k in query_fields & settings.keys()}
    return QueryEngine(QuerySettings(EngineSettings(spill, **settings), **query_settings))


def list_rows(table: pa.Table) -> list[Row]:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True))
