"""A real table in a folder, with its expected rows in a list."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import EngineSettings
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.files import DataFile, new_data_path
from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import (
    Partition,
    PartitionId,
    subtree,
    tree_from_split_points,
)
from sleeper.query.engine import QueryEngine, QuerySettings, QueryTable
from sleeper.schema.json import schema_to_json
from sleeper.schema.model import KeyValue, Schema
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
)
from sleeper.statestore.transactions.split_partition import SplitPartition
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.storage.location import DataRoot

Row = tuple[Any, ...]

_job_numbers = itertools.count()
_FILE_SETTINGS = FileSettings(row_group_rows_max=1000, page_bytes=1024)


@dataclass
class TableMaker:
    """A table that grows step by step. `rows` are its rows, `versions` those of older versions."""

    folder: Path
    schema: Schema
    split_points: Sequence[KeyValue] = ()
    rows: list[Row] = field(default_factory=list)
    versions: dict[int, list[Row]] = field(default_factory=dict)
    store: StateStore = field(init=False)
    root: DataRoot = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_state_store(self.folder / "state.db")
        self.root = DataRoot(self.folder)
        tree = tree_from_split_points(self.schema, self.split_points)
        self._commit(InitialiseTable(schema_to_json(self.schema), tuple(tree)))

    @property
    def table(self) -> QueryTable:
        return QueryTable("made", self.store, self.root)

    def leaves(self) -> list[Partition]:
        with self.store.reading() as state:
            return list(state.partitions.leaves())

    def partitions(self) -> list[Partition]:
        with self.store.reading() as state:
            return list(state.partitions.all())

    def add(self, rows: Sequence[Row], partition_id: PartitionId | None = None) -> DataFile | None:
        """Adds a file with the rows in the partition, or one that all leaves share."""
        of = [p for p in self.partitions() if p.id == partition_id] or self.leaves()
        counts = [(p.id, sum(p.region.contains(self._key(r)) for r in rows)) for p in of]
        kept = [r for r in rows if any(p.region.contains(self._key(r)) for p in of)]
        if not kept:
            return None
        file = self._write(kept, of[0].id)
        references = tuple((i, n) for i, n in counts if n)
        self.rows += kept
        job_id = f"job-{next(_job_numbers)}"
        self._commit(AddFiles(job_id, _now_ms(), (NewFile(file, references),)))
        return file

    def split(self, leaf: Partition, dimension: int, point: KeyValue) -> None:
        self._commit(SplitPartition(leaf.id, tuple(subtree(leaf, dimension, [point]))))

    def compact(self, partition: Partition) -> list[str]:
        """Merges the partition's own files into one; returns the input files."""
        with self.store.reading() as state:
            of = [r.path for r in state.files.references() if r.partition_id == partition.id]
            files = {f.path: f for f in state.files.all()}
        if not of:
            return []
        inputs = tuple(sorted(of))
        held = [r for path in inputs for r in self._read(path, partition)]
        job_id = f"job-{next(_job_numbers)}"
        assignment = JobAssignment(job_id, partition.id, inputs, _now_ms() + 10**7)
        self._commit(AssignFiles((assignment,)))
        output = self._write(held, partition.id) if held else None
        self._commit(CommitCompaction(job_id, partition.id, inputs, output, _now_ms()))
        return [path for path in inputs if path in files]

    def replace_files(self, output: DataFile) -> None:
        """Commits a compaction of all files of the only leaf into an existing file."""
        (leaf,) = self.leaves()
        with self.store.reading() as state:
            inputs = tuple(sorted(f.path for f in state.files.all()))
        job_id = f"job-{next(_job_numbers)}"
        self._commit(AssignFiles((JobAssignment(job_id, leaf.id, inputs, _now_ms() + 10**7),)))
        self._commit(CommitCompaction(job_id, leaf.id, inputs, output, _now_ms()))

    def collect(self, delete: bool = True) -> list[str]:
        """Collects and deletes every unreferenced file."""
        with self.store.reading() as state:
            gone = state.collection.unreferenced(2**60, 1000)
        if gone:
            paths = tuple(f.path for f in gone)
            self._commit(CollectFiles(paths, max(f.unreferenced for f in gone)))
            if delete:
                self.root.delete(list(paths))
        return [f.path for f in gone]

    def _commit(self, transaction: Any) -> None:
        number = self.store.commit_or_raise(transaction)
        assert number is not None
        self.versions[number] = list(self.rows)

    def _write(self, rows: Sequence[Row], partition_id: PartitionId) -> DataFile:
        kind = arrow_schema(self.schema)
        keys = len(self.schema.keys)
        columns = zip(*sorted(rows, key=lambda r: r[:keys]), strict=True)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, kind, strict=True)], schema=kind
        )
        path = new_data_path("table", partition_id, _now_ms())
        writer = DataFileWriter(self.root, path, self.schema, _FILE_SETTINGS)
        writer.write([batch])
        return writer.finish()

    def _read(self, path: str, partition: Partition) -> list[Row]:
        table = pq.read_table(self.root.url_of(path))
        found = zip(*(table.column(n).to_pylist() for n in table.column_names), strict=True)
        return [r for r in found if partition.region.contains(self._key(r))]

    def _key(self, row: Row) -> Row:
        return row[: len(self.schema.row_keys)]


def make_engine(folder: Path, **settings: Any) -> QueryEngine:
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    of_query = {
        k: settings.pop(k)
        for k in ("hold_seconds", "rows_max", "seconds_max", "verifies_checksums")
        if k in settings
    }
    return QueryEngine(QuerySettings(EngineSettings(spill, **settings), **of_query))


def rows_of(table: pa.Table) -> list[Row]:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
