"""Runs an adapter: its source's rows become one commit of the sink.

Each run is a job of the kind `adapter` under its own id, which the job tracker records with its
source, version, rows and bytes. A repeated run id reads nothing.
"""

import os
from collections.abc import Callable, Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from sleeper.adapters.column_mapping import ColumnMapping
from sleeper.adapters.definition import (
    ADAPTER_RUN,
    Adapter,
    DatabaseSource,
    Engine,
    FilesSource,
    Source,
    TableSource,
)
from sleeper.adapters.mapped_rows import map_rows, read_mapped_files
from sleeper.adapters.message import check_run_id
from sleeper.adapters.passwords import read_password
from sleeper.adapters.postgresql import read_database
from sleeper.adapters.store import AdapterStore
from sleeper.adapters.table_rows import pinned_table
from sleeper.datafiles.sources.files import find_source_files
from sleeper.errors import InvalidRequestError
from sleeper.ingest.run import (
    IngestProgress,
    IngestResult,
    IngestTable,
    ingest_checked,
    ingest_files,
)
from sleeper.ingest.service import describe_rows_job, ingest_table, trace_ingest
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import new_run_id
from sleeper.runs.commit import find_earlier_commit
from sleeper.runs.task import record_task
from sleeper.runs.tracking import RunResult, track_run, unknown_table_id
from sleeper.schema.model import Schema
from sleeper.storage.bucket_folder import S3File, SourceFile


class SparkDatabases(Protocol):
    """Reads databases with Spark. Its session starts on first use."""

    def check(self, source: DatabaseSource, password: str | None, schema: Schema) -> None:
        """Raises an error if the source cannot be reached or does not fit the schema."""

    def load(
        self,
        table: OpenTable,
        source: DatabaseSource,
        password: str | None,
        job_id: str,
        request: str,
        mapping: ColumnMapping,
    ) -> "SparkLoad":
        """Commits all rows of the source as the job. The load begins before its first row."""


@dataclass(frozen=True, slots=True)
class SparkLoad:
    """The result of a load by Spark. `note` is a caveat for users."""

    result: IngestResult
    note: str | None = None


OpenSpark = Callable[[], SparkDatabases]


@dataclass(frozen=True, slots=True)
class AdapterRun:
    """The result of a run of an adapter. `source` names the version of a table.

    `number` is the number of the sink's transaction, which is the version of a snapshot table.
    `done_before` is true if an earlier run with the id committed; rows, files and bytes are then 0.
    `note` is a caveat, such as on parts that were read in separate transactions.
    """

    adapter: str
    run_id: str
    job_id: str
    sink: str
    source: str
    rows: int
    files: int
    bytes: int
    number: int | None
    done_before: bool = False
    note: str | None = None


def run_adapter(
    instance: Instance,
    name: str,
    run_id: str | None = None,
    progress: IngestProgress | None = None,
    spark: OpenSpark | None = None,
    task_id: str | None = None,
    tracker_run_id: str | None = None,
) -> AdapterRun:
    """Runs an adapter in this process, which is a task of its own unless `task_id` names one.

    `tracker_run_id` is the id of a run that the job tracker knows as accepted.

    NotFoundError if there is no such adapter. InvalidRequestError, recorded as a rejection, if a
    row does not fit or the run can never succeed, UnavailableError if the source does not answer.
    """
    adapter = AdapterStore(instance.storage.root).get(name)
    run_id = new_run_id() if run_id is None else check_run_id(run_id)
    work = _Run(instance, adapter, run_id, progress, spark, tracker_run_id)
    context = nullcontext() if task_id is not None else record_task(instance, ADAPTER_RUN)
    with context as task:
        run = work.execute(task_id or (task.id if task is not None else None))
        if task is not None:
            task.add_job(run.rows, run.rows)
    return run


@dataclass(frozen=True, slots=True)
class _Run:
    instance: Instance
    adapter: Adapter
    run_id: str
    progress: IngestProgress | None
    spark: OpenSpark | None
    tracker_run_id: str | None

    @property
    def job_id(self) -> str:
        return self.adapter.job_id(self.run_id)

    def execute(self, task_id: str | None) -> AdapterRun:
        """Runs and tracks the job."""
        table = self._find_sink()
        tracker = track_run(
            self.instance,
            ADAPTER_RUN,
            table.ref.id,
            self.job_id,
            task_id,
            self.tracker_run_id,
        )
        with trace_ingest(table, self.job_id):
            return tracker.execute(
                lambda _: self._load(table), _describe, source=self.adapter.source.describe()
            )

    def _find_sink(self) -> OpenTable:
        name = self.adapter.sink.table
        table_id = unknown_table_id(name, None)
        with track_run(self.instance, ADAPTER_RUN, table_id, self.job_id).reject_errors():
            return self.instance.table(name)

    def _load(self, table: OpenTable) -> AdapterRun:
        earlier = find_earlier_commit(table.state, self.job_id, self._request)
        if earlier is not None:
            done = IngestResult(self.job_id, 0, 0, earlier.number, done_before=True)
            return self._result(done)
        source: Source = self.adapter.source
        match source:
            case TableSource():
                return self._load_table(table, source)
            case FilesSource():
                find = partial(find_files, self.instance, source)
                target = ingest_table(table)
                if not self.adapter.mapping.is_empty:
                    return self._result(self._ingest(table, self._mapped_files(target, find)))
                return self._result(
                    ingest_files(target, self.job_id, find, self._request, progress=self.progress)
                )
            case DatabaseSource():
                return self._load_database(table, source)

    def _mapped_files(
        self, target: IngestTable, find: Callable[[], list[SourceFile]]
    ) -> Generator[pa.RecordBatch]:
        yield from read_mapped_files(target, find(), self.adapter.mapping)

    def _load_table(self, table: OpenTable, source: TableSource) -> AdapterRun:
        described: list[str] = []
        owner, mapping = f"adapter {self.adapter.name}", self.adapter.mapping
        sink = ingest_table(table).source_schema
        schema = mapping.source_schema(sink)

        def read() -> Generator[pa.RecordBatch]:
            # Opened when the load has begun: a load that begins later reads a later version.
            with pinned_table(self.instance, source, schema, owner) as pinned:
                described.append(pinned.source)
                yield from map_rows(mapping, pinned.batches, sink)

        return self._result(self._ingest(table, read()), *described)

    def _load_database(self, table: OpenTable, source: DatabaseSource) -> AdapterRun:
        password = read_password(self.instance, source)
        if source.chosen_engine is Engine.ADBC:
            return self._result(self._ingest(table, self._database_rows(table, source, password)))
        if self.spark is None:
            raise InvalidRequestError(
                f"adapter {self.adapter.name!r} reads its database with Spark, which this process "
                "does not start"
            )
        mapping = self.adapter.mapping
        loaded = self.spark().load(table, source, password, self.job_id, self._request, mapping)
        return replace(self._result(loaded.result), note=loaded.note)

    def _database_rows(
        self, table: OpenTable, source: DatabaseSource, password: str | None
    ) -> Generator[pa.RecordBatch]:
        sink, mapping = ingest_table(table).source_schema, self.adapter.mapping
        with closing(read_database(source, password, mapping.source_schema(sink))) as rows:
            yield from map_rows(mapping, rows, sink)

    def _ingest(self, table: OpenTable, rows: Generator[pa.RecordBatch]) -> IngestResult:
        with closing(rows) as batches:
            target = ingest_table(table)
            return ingest_checked(target, self.job_id, batches, self._request, self.progress)

    @property
    def _request(self) -> str:
        return describe_rows_job(self.job_id)

    def _result(self, result: IngestResult, source: str | None = None) -> AdapterRun:
        return AdapterRun(
            self.adapter.name,
            self.run_id,
            self.job_id,
            self.adapter.sink.table,
            source or self.adapter.source.describe(),
            result.rows,
            result.files,
            result.bytes,
            result.number,
            result.done_before,
        )


def _describe(run: AdapterRun) -> RunResult:
    if run.done_before:
        return RunResult(None, number=run.number)
    return RunResult(run.rows, bytes=run.bytes, number=run.number, source=run.source)


def find_files(instance: Instance, source: FilesSource) -> list[SourceFile]:
    """Returns the files that the paths of a source name, that match its patterns or are below them.

    A file that several paths name is read once. InvalidRequestError if a file is missing, or
    nothing matches a pattern.
    """
    files = find_source_files([instance.storage.sources.open(name) for name in source.paths])
    return list({_identity(file): file for file in files}.values())


def _identity(file: SourceFile) -> str:
    return str(file) if isinstance(file, S3File) else os.path.realpath(file)
