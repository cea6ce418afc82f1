"""Runs one ingest: reads and sorts rows, writes data files, commits them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sleeper.clock import Clock
from sleeper.datafiles.engine.settings import EngineSettings, spill_folder
from sleeper.datafiles.sources.budget import RowBudget
from sleeper.datafiles.sources.enrichment import RowEnrichment, make_source_schema
from sleeper.datafiles.sources.files import (
    RowChecker,
    SourceFormat,
    find_source_files,
    read_batches,
    source_format,
)
from sleeper.datafiles.sources.operations import Operations
from sleeper.datafiles.sources.parquet import (
    count_rows,
    is_scannable,
    open_parquet,
    read_parquet,
    warn_of_extra_columns,
)
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget
from sleeper.errors import DataError, InvalidRequestError
from sleeper.ingest.gathered_rows import GatheredRows
from sleeper.ingest.references import choose_references, list_counted
from sleeper.processing.enrichment import Lookup, enriched_names
from sleeper.runs.commit import (
    RunStart,
    begin_run,
    check_file_outcome,
    commit_until_settled,
    find_earlier_commit,
)
from sleeper.schema.model import Schema
from sleeper.statestore.reading.descent import Descent
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.location import DataRoot
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

IN_MEMORY_NAME = "(in-memory rows)"
"""The name of Arrow batches in errors."""

OnRows = Callable[[int], None]
FindFiles = Callable[[], Sequence[SourceFile]]


def _ignore_rows(_: int) -> None:
    """Ignores a row count."""


@dataclass(frozen=True, slots=True)
class TableEnrichment:
    """The fields of a table that an ingest fills.

    `open` returns what fills them. It loads what is looked up, as it is when a job begins.
    """

    lookups: tuple[Lookup, ...]
    open: Callable[[], RowEnrichment]


@dataclass(frozen=True, slots=True)
class IngestTable:
    """The target table and the resources of an ingest.

    `commit` may queue the commit (see `CommitRun`). The default commits here. `enrichment` is None
    if the table has none. Without a `descent`, all references are in leaves.
    """

    table_id: str
    schema: Schema
    state: StateStore
    root: DataRoot
    engine: EngineSettings
    clock: Clock
    files: FileSettings = field(default_factory=FileSettings)
    strategy: FileStrategy = FileStrategy.ONE_REFERENCE_PER_LEAF
    refuses_extra_columns: bool = False
    commit: Callable[[AddFiles], Outcome | None] | None = None
    enrichment: TableEnrichment | None = None
    descent: Descent | None = None

    @property
    def source_schema(self) -> Schema:
        """The schema of sources, which may lack the fields that are filled."""
        if self.enrichment is None:
            return self.schema
        return make_source_schema(self.schema, enriched_names(self.enrichment.lookups))

    def open_enrichment(self) -> RowEnrichment | None:
        """Opens the enrichment for one job. None if the table has none."""
        return None if self.enrichment is None else self.enrichment.open()


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Callbacks that receive the numbers of rows read and written."""

    rows_read: OnRows = _ignore_rows
    rows_written: OnRows = _ignore_rows


_NO_PROGRESS = IngestProgress()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of an ingest.

    `number` is the number of its transaction, `bytes` are those of the files. `done_before` is
    true if an earlier ingest with the same job id committed the rows. `queued` is true if the
    commit waits for the committer; `number` is None then. `rejected` is the number of rows that
    were set aside.
    """

    job_id: str
    rows: int
    files: int
    number: int | None
    done_before: bool = False
    queued: bool = False
    bytes: int = 0
    rejected: int = 0


def ingest_files(
    table: IngestTable,
    job_id: str,
    paths: Sequence[SourceFile] | FindFiles,
    request: str,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
    op_column: str | None = None,
    options: SourceOptions = DEFAULT_OPTIONS,
    budget: RowBudget | None = None,
) -> IngestResult:
    """Ingests files, and every file of a known format below directories.

    A function that finds the files is called when the run has begun. Rows that do not fit go to
    `rejects`. Without it, InvalidRequestError refuses the whole job, as it does if no row fits.
    `op_column` is the column of the rows' operations, for a table of latest rows. `options` say how
    the files are read. `budget` limits rows from outside.
    """
    operations, files = make_operations(table.schema, op_column), list[SourceFile]()

    def gather(rows: GatheredRows) -> None:
        if rejects is not None:
            rejects.begin()
        files.extend(paths() if callable(paths) else find_source_files(paths, options))
        enrichment = table.open_enrichment()
        for path in files:
            checker = RowChecker(
                table.schema,
                str(path),
                rejects,
                refuses_extra_columns=table.refuses_extra_columns,
                line_bytes_max=table.engine.line_bytes_max,
                json_limits=table.engine.json_limits,
                operations=operations,
                enrichment=enrichment,
                threads=table.engine.threads,
                options=options,
                budget=budget,
            )
            _add_source(rows, path, checker, progress or _NO_PROGRESS)
        if rejects is not None:
            rejects.keep()
            rejects.check_some_fit(rows.unsorted.rows)

    try:
        result = _run(table, job_id, request, gather, progress or _NO_PROGRESS)
    except DataError:
        _find_damage(table, files, options)
        raise
    rejected = 0 if rejects is None or result.done_before else rejects.count
    return replace(result, rejected=rejected)


def ingest_batches(
    table: IngestTable,
    job_id: str,
    batches: Iterable[pa.RecordBatch],
    request: str,
    progress: IngestProgress | None = None,
    op_column: str | None = None,
    options: SourceOptions = DEFAULT_OPTIONS,
    budget: RowBudget | None = None,
) -> IngestResult:
    """Ingests Arrow batches, which may exceed memory. `budget` limits those from outside."""
    operations = make_operations(table.schema, op_column)

    def gather(rows: GatheredRows) -> None:
        checker = RowChecker(
            table.schema,
            IN_MEMORY_NAME,
            None,
            operations=operations,
            enrichment=table.open_enrichment(),
            options=options,
            budget=budget,
            json_limits=table.engine.json_limits,
        )
        _stage(rows, read_batches(iter(batches), checker), progress or _NO_PROGRESS)

    return _run(table, job_id, request, gather, progress or _NO_PROGRESS)


def ingest_checked(
    table: IngestTable,
    job_id: str,
    batches: Iterable[pa.RecordBatch],
    request: str,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Ingests batches of exactly the schema of sources, which the caller checked.

    They are not read if the job was done before.
    """

    def gather(rows: GatheredRows) -> None:
        checked = iter(batches)
        enrichment = table.open_enrichment()
        if enrichment is not None:
            checker = RowChecker(table.schema, "(rows of the source)", None, enrichment=enrichment)
            checked = read_batches(checked, checker)
        _stage(rows, checked, progress or _NO_PROGRESS)

    return _run(table, job_id, request, gather, progress or _NO_PROGRESS)


def make_operations(schema: Schema, op_column: str | None) -> Operations | None:
    """Returns the column of operations, if there is one."""
    return None if op_column is None else Operations(schema, op_column)


def _run(
    table: IngestTable,
    job_id: str,
    request: str,
    gather: Callable[[GatheredRows], None],
    progress: IngestProgress,
) -> IngestResult:
    earlier = find_earlier_commit(table.state, job_id, request)
    if earlier is not None:
        return IngestResult(job_id, 0, 0, earlier.number, done_before=True)
    start = begin_run(table.state, table.clock, job_id)
    with _stage_in_folder(table, start) as staged:
        gather(staged.gathered)
        files = staged.write(progress)
    return commit_new_files(table, job_id, start, files, request)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of a run on local disk, in the order of the input, until they are written."""

    table: IngestTable
    start: RunStart
    gathered: GatheredRows
    enrichment: RowEnrichment | None = None

    def add_batches(self, batches: Iterable[pa.RecordBatch], op_column: str | None = None) -> None:
        """Checks and adds Arrow batches. InvalidRequestError if a row does not fit."""
        schema = self.table.schema
        operations = make_operations(schema, op_column)
        checker = RowChecker(
            schema,
            IN_MEMORY_NAME,
            None,
            operations=operations,
            enrichment=self.enrichment,
            json_limits=self.table.engine.json_limits,
        )
        self.gathered.add_batches(read_batches(iter(batches), checker))

    def write(self, progress: IngestProgress | None = None) -> tuple[NewFile, ...]:
        """Sorts the rows and writes them to data files, which nothing has committed yet."""
        table, unsorted = self.table, self.gathered.unsorted
        with table.state.reading() as state:
            counted = list_counted(state, table.descent, unsorted.rows, unsorted.bytes)
        target = WriteTarget(
            table.root,
            table.table_id,
            self.gathered.written,
            counted,
            self.start.ms,
            table.files,
            table.engine.threads,
            table.engine.spill_folder,
        )
        on_rows = (progress or _NO_PROGRESS).rows_written
        files = self.gathered.write(target, table.strategy, on_rows)
        with table.state.reading(stale=True) as state:
            return choose_references(state, table.descent, files)


@contextmanager
def stage_rows(table: IngestTable, start: RunStart) -> Iterator[StagedRows]:
    """Yields an empty stage of rows, whose local files are deleted at the end."""
    with _stage_in_folder(table, start, table.open_enrichment()) as staged:
        yield staged


@contextmanager
def _stage_in_folder(
    table: IngestTable, start: RunStart, enrichment: RowEnrichment | None = None
) -> Iterator[StagedRows]:
    with (
        spill_folder(table.engine, "ingest") as folder,
        closing(GatheredRows(table.schema, folder, table.engine)) as gathered,
    ):
        yield StagedRows(table, start, gathered, enrichment)


def commit_new_files(
    table: IngestTable, job_id: str, start: RunStart, files: tuple[NewFile, ...], request: str
) -> IngestResult:
    """Adds a job's files to the table. They become orphans if the job was done before."""
    rows = sum(new.file.rows for new in files)
    size = sum(new.file.bytes for new in files)
    added = start.commit_of(job_id, files, request)
    commit = table.commit or (lambda files: table.state.commit(files)[0])
    outcome = commit_until_settled(lambda: commit(added))
    if outcome is None:
        return IngestResult(job_id, rows, len(files), None, queued=True, bytes=size)
    check_file_outcome(table.state, added, outcome)
    if outcome.status is Status.ALREADY_DONE:
        return IngestResult(job_id, 0, 0, outcome.number, done_before=True)
    return IngestResult(job_id, rows, len(files), outcome.number, bytes=size)


def _add_source(
    rows: GatheredRows, path: SourceFile, checker: RowChecker, progress: IngestProgress
) -> None:
    match source_format(path, checker.options):
        case SourceFormat.PARQUET:
            file = open_parquet(path, checker)
            if file is None:
                return
            warn_of_extra_columns(path, file, checker.schema)
            is_unchanged = rows.is_scannable and checker.enrichment is None
            if is_unchanged and is_scannable(path, file, checker.schema):
                rows.unsorted.add_file(path, file.schema_arrow, *count_rows(file))
                progress.rows_read(file.metadata.num_rows)
            else:
                _stage(rows, read_parquet(path, checker), progress)
        case SourceFormat.CSV:
            _stage(rows, read_csv(path, checker), progress)
        case SourceFormat.JSON_LINES:
            _stage(rows, read_json_lines(path, checker), progress)


def _find_damage(table: IngestTable, files: Sequence[SourceFile], options: SourceOptions) -> None:
    """Raises InvalidRequestError with the name of a damaged source file.

    Arrow's errors name the row group, so it reads first. It can read some files that the engine
    cannot.
    """
    schema = replace(table.source_schema, latest=None)
    for path in files:
        if source_format(path, options) is not SourceFormat.PARQUET:
            continue
        for _ in read_parquet(path, RowChecker(schema, str(path), None, options=options)):
            pass
        with (
            spill_folder(table.engine, "ingest") as folder,
            closing(GatheredRows(schema, folder, table.engine)) as rows,
        ):
            checker = RowChecker(schema, str(path), None, options=options)
            _add_source(rows, path, checker, _NO_PROGRESS)
            try:
                for _ in rows.in_order():
                    pass
            except DataError as error:
                raise InvalidRequestError(f"file {path}: cannot be read: {error}") from error


def _stage(rows: GatheredRows, batches: Iterator[pa.RecordBatch], progress: IngestProgress) -> None:
    def count_rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            progress.rows_read(batch.num_rows)
            yield batch

    rows.add_batches(count_rows())
