"""Runs one ingest: reads and sorts rows, writes data files, commits them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sleeper.clock import Clock
from sleeper.datafiles.engine.session import EngineSettings, spill_folder
from sleeper.datafiles.merge.sort import UnsortedRows, sort
from sleeper.datafiles.sources.files import (
    Rejects,
    RowChecker,
    SourceFormat,
    find_source_files,
    read_batches,
    source_format,
)
from sleeper.datafiles.sources.parquet import (
    is_scannable,
    open_parquet,
    read_parquet,
    warn_of_extra_columns,
)
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import (
    FileStrategy,
    WriteTarget,
    WrittenFile,
    write_sorted,
)
from sleeper.errors import DataError, InvalidRequestError
from sleeper.runs.commit import (
    check_file_outcome,
    commit_until_known,
    find_earlier_commit,
)
from sleeper.schema.model import Schema
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.storage.bucket_folder import S3File, SourceFile
from sleeper.storage.location import DataRoot

OnRows = Callable[[int], None]


def _ignore_rows(_: int) -> None:
    """Ignores a row count."""


@dataclass(frozen=True, slots=True)
class IngestTable:
    """The target table and the resources of an ingest.

    `commit` may queue the commit (see `CommitRun`). The default commits here.
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


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Callbacks that receive the numbers of rows read and written."""

    rows_read: OnRows = _ignore_rows
    rows_written: OnRows = _ignore_rows


_NO_PROGRESS = IngestProgress()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of an ingest.

    `number` is the number of its transaction. `done_before` is true if an earlier ingest with
    the same job id committed the rows. `queued` is true if the commit waits for the committer;
    `number` is None then.
    """

    job_id: str
    rows: int
    files: int
    number: int | None
    done_before: bool = False
    queued: bool = False


def ingest_files(
    table: IngestTable,
    job_id: str,
    paths: Sequence[SourceFile],
    request: str,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Ingests files, and every file of a known format below directories.

    Rows that do not fit go to `rejects`. Without it, InvalidRequestError refuses the whole job.
    """

    def gather(unsorted: UnsortedRows) -> None:
        if rejects is not None:
            rejects.begin()
        for path in find_source_files(paths):
            checker = RowChecker(
                table.schema,
                str(path),
                rejects,
                refuses_extra_columns=table.refuses_extra_columns,
                line_bytes_max=table.engine.line_bytes_max,
            )
            _add_source(unsorted, path, checker, progress or _NO_PROGRESS)
        if rejects is not None:
            rejects.keep()

    try:
        return _run(table, job_id, request, gather, progress or _NO_PROGRESS)
    except DataError:
        _find_damage(table, paths)
        raise


def ingest_batches(
    table: IngestTable,
    job_id: str,
    batches: Iterable[pa.RecordBatch],
    request: str,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Ingests Arrow batches, which may exceed memory."""

    def gather(unsorted: UnsortedRows) -> None:
        checker = RowChecker(table.schema, "(in-memory rows)", None)
        _stage(unsorted, read_batches(iter(batches), checker), progress or _NO_PROGRESS)

    return _run(table, job_id, request, gather, progress or _NO_PROGRESS)


def _run(
    table: IngestTable,
    job_id: str,
    request: str,
    gather: Callable[[UnsortedRows], None],
    progress: IngestProgress,
) -> IngestResult:
    with table.state.reading() as state:
        run_start_ms = state.run_start(table.clock())
    earlier = find_earlier_commit(table.state, job_id, request)
    if earlier is not None:
        return IngestResult(job_id, 0, 0, earlier.number, done_before=True)
    with spill_folder(table.engine, "ingest") as folder:
        unsorted = UnsortedRows(table.schema, folder)
        gather(unsorted)
        with table.state.reading() as state:
            leaves = list(state.partitions.leaves())
        target = WriteTarget(
            table.root,
            table.table_id,
            table.schema,
            leaves,
            run_start_ms,
            table.files,
            table.engine.threads,
        )
        rows = sort(unsorted, table.engine)
        written = write_sorted(rows, target, table.strategy, progress.rows_written)
    return commit_new_files(table, job_id, run_start_ms, new_files(written), request)


def new_files(written: Iterable[WrittenFile]) -> tuple[NewFile, ...]:
    """Returns the written files as parts of a commit."""
    return tuple(
        NewFile(w.file, tuple((r.partition_id, r.rows) for r in w.references)) for w in written
    )


def commit_new_files(
    table: IngestTable, job_id: str, run_start_ms: int, files: tuple[NewFile, ...], request: str
) -> IngestResult:
    """Adds a job's files to the table. They become orphans if the job was done before."""
    rows = sum(new.file.rows for new in files)
    added = AddFiles(job_id, run_start_ms, files, request)
    commit = table.commit or (lambda files: table.state.commit(files)[0])
    outcome = commit_until_known(lambda: commit(added))
    if outcome is None:
        return IngestResult(job_id, rows, len(files), None, queued=True)
    check_file_outcome(table.state, added, outcome)
    if outcome.status is Status.ALREADY_DONE:
        return IngestResult(job_id, 0, 0, outcome.number, done_before=True)
    return IngestResult(job_id, rows, len(files), outcome.number)


def _add_source(
    unsorted: UnsortedRows, path: SourceFile, checker: RowChecker, progress: IngestProgress
) -> None:
    match source_format(path):
        case SourceFormat.PARQUET:
            file = open_parquet(path, checker)
            if file is None:
                return
            warn_of_extra_columns(path, file, checker.schema)
            if is_scannable(path, file, checker.schema):
                address = str(path if isinstance(path, S3File) else path.resolve())
                unsorted.add_file(address, file.schema_arrow, file.metadata.num_rows)
                progress.rows_read(file.metadata.num_rows)
            else:
                _stage(unsorted, read_parquet(path, checker), progress)
        case SourceFormat.CSV:
            _stage(unsorted, read_csv(path, checker), progress)
        case SourceFormat.JSON_LINES:
            _stage(unsorted, read_json_lines(path, checker), progress)


def _find_damage(table: IngestTable, paths: Sequence[SourceFile]) -> None:
    """Raises InvalidRequestError with the name of a damaged source file.

    Arrow's errors name the row group, so it reads first. It can read some files that the engine
    cannot.
    """
    for path in find_source_files(paths):
        if source_format(path) is not SourceFormat.PARQUET:
            continue
        for _ in read_parquet(path, RowChecker(table.schema, str(path), None)):
            pass
        with spill_folder(table.engine, "ingest") as folder:
            unsorted = UnsortedRows(table.schema, folder)
            checker = RowChecker(table.schema, str(path), None)
            _add_source(unsorted, path, checker, _NO_PROGRESS)
            try:
                for _ in sort(unsorted, table.engine):
                    pass
            except DataError as error:
                raise InvalidRequestError(f"file {path}: cannot be read: {error}") from error


def _stage(
    unsorted: UnsortedRows, batches: Iterator[pa.RecordBatch], progress: IngestProgress
) -> None:
    def count_rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            progress.rows_read(batch.num_rows)
            yield batch

    unsorted.add_batches(count_rows())
