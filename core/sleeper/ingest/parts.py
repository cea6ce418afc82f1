"""Ingests whose rows are written by several processes, such as Spark's executors.

The leader *begins* the ingest, each process *writes* a part, and the leader commits the files of
all parts under the job's id. Files of repeated parts and of uncommitted jobs are orphans.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.datafiles.engine.session import EngineSettings, spill_folder
from sleeper.datafiles.merge.sort import UnsortedRows, sort
from sleeper.datafiles.sources.files import RowChecker, read_batches
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import SleeperError
from sleeper.ingest.run import IngestResult, IngestTable, commit_new_files, new_files
from sleeper.ingest.service import describe_rows_job, ingest_table
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind, JobStep
from sleeper.partitions.partition import Partition
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.runs.commit import commit_until_known, find_earlier_commit
from sleeper.runs.engine import engine_settings
from sleeper.runs.tracking import track_run
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.location import DataRoot
from sleeper.tables import TableRef

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartTarget:
    """The target of every part, which is sent to the writing processes.

    If a leaf is split concurrently, it keeps the files written for it until push down.
    """

    table_id: str
    schema: Schema
    leaves: tuple[Partition, ...]
    run_start_ms: int
    files: FileSettings
    strategy: FileStrategy


def begin_parts(table: IngestTable, kind: pa.Schema, name: str) -> PartTarget:
    """Returns the target for rows of this Arrow schema. `name` identifies the rows in errors.

    InvalidRequestError if columns are missing or extra, or their types can never fit.
    """
    checker = RowChecker(table.schema, name, None)
    checker.check_columns(kind.names)
    checker.check_types(kind)
    with table.state.reading() as state:
        run_start_ms = state.run_start(table.clock())
        leaves = tuple(state.partitions.leaves())
    return PartTarget(
        table.table_id, table.schema, leaves, run_start_ms, table.files, table.strategy
    )


def write_part(
    target: PartTarget,
    batches: Iterable[pa.RecordBatch],
    name: str,
    root: DataRoot,
    engine: EngineSettings,
) -> tuple[NewFile, ...]:
    """Checks, casts, sorts and writes rows, without a commit.

    InvalidRequestError names the row that does not fit, counted within the part.
    """
    with spill_folder(engine, "ingest") as folder:
        unsorted = UnsortedRows(target.schema, folder)
        checker = RowChecker(target.schema, name, None)
        unsorted.add_batches(read_batches(iter(batches), checker))
        if not unsorted.rows:
            return ()
        where = WriteTarget(
            root,
            target.table_id,
            target.schema,
            target.leaves,
            target.run_start_ms,
            target.files,
            engine.threads,
        )
        rows = sort(unsorted, replace(engine, spill_folder=folder))
        return new_files(write_sorted(rows, where, target.strategy))


@dataclass(frozen=True, slots=True)
class BegunIngest:
    """A table and the target of its parts."""

    ref: TableRef
    target: PartTarget


def begin_ingest(table: OpenTable, kind: pa.Schema, name: str) -> BegunIngest:
    """Checks that rows of this Arrow schema can fit the table, before rows are read."""
    return BegunIngest(table.ref, begin_parts(ingest_table(table), kind, name))


def write_ingest_part(
    instance: Instance,
    begun: BegunIngest,
    batches: Iterable[pa.RecordBatch],
    name: str,
    threads_max: int,
) -> tuple[NewFile, ...]:
    """Writes a part's rows to files, without a commit."""
    engine = engine_settings(instance, SORT_MEMORY_BYTES)
    engine = replace(engine, threads=min(engine.threads, threads_max))
    return write_part(begun.target, batches, name, instance.storage.root, engine)


def was_ingested(table: OpenTable, job_id: str) -> bool:
    """Whether the job is committed. InvalidRequestError if another request has its id."""
    return find_earlier_commit(table.state, job_id, describe_rows_job(job_id)) is not None


def commit_ingest(
    instance: Instance, begun: BegunIngest, job_id: str, files: Sequence[NewFile]
) -> IngestResult:
    """Adds the files of all parts to the table in one commit, unless the job was done before.

    StateMovedOnError if the table is gone.
    """
    table = OpenTable(instance, begun.ref)
    request = describe_rows_job(job_id)
    start_ms = begun.target.run_start_ms
    try:
        commit_until_known(table.check_active)
        result = commit_new_files(ingest_table(table), job_id, start_ms, tuple(files), request)
    except SleeperError as error:
        record_failed_ingest(instance, begun, job_id, str(error))
        raise
    rows = {} if result.done_before else {"rows_read": result.rows, "rows_written": result.rows}
    _record(instance, begun, job_id, (JobStep.FINISHED, rows), (JobStep.COMMITTED, {}))
    return result


def record_failed_ingest(instance: Instance, begun: BegunIngest, job_id: str, reason: str) -> None:
    """Records the failure of an ingest.

    Collection deletes the written files. This does not, because the commit may have been applied
    although its response was lost.
    """
    _record(instance, begun, job_id, (JobStep.FAILED, {"reasons": (reason,)}))


def _record(
    instance: Instance,
    begun: BegunIngest,
    job_id: str,
    *steps: tuple[JobStep, Mapping[str, object]],
) -> None:
    """Records a run with its start. Logs an error of the tracker: the job may be committed."""
    tracker, now_ms = track_run(instance, JobKind.INGEST, begun.ref.id, job_id), instance.clock()
    started = tracker.run.event(JobStep.STARTED, min(begun.target.run_start_ms, now_ms))
    ended = (tracker.run.event(step, now_ms, **more) for step, more in steps)  # type: ignore[arg-type]
    tracker.try_record(started, *ended)
