"""Ingests whose rows other processes write, part by part, tracked when they end."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.errors import SleeperError
from sleeper.ingest.parts import PartTarget, begin_parts, write_part
from sleeper.ingest.run import IngestResult, commit_new_files
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.properties.engine import SORT_MEMORY_BYTES
from sleeper.statestore.file_commits import earlier_commit
from sleeper.statestore.run_commit import commit_until_known
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.engine import engine_settings
from sleeper.wiring.ingest import ingest_table, request_of_rows
from sleeper.wiring.instance import Instance, OpenTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BegunIngest:
    """A table, and what the processes need that write rows for it."""

    ref: TableRef
    target: PartTarget


def begin_ingest(table: OpenTable, found: pa.Schema, name: str) -> BegunIngest:
    """Looks whether rows of that Arrow schema can fit the table, before any is read."""
    return BegunIngest(table.ref, begin_parts(ingest_table(table), found, name))


def write_ingest_part(
    instance: Instance,
    begun: BegunIngest,
    batches: Iterable[pa.RecordBatch],
    name: str,
    threads_max: int,
) -> tuple[NewFile, ...]:
    """Writes a part's rows to files that are not in the table yet."""
    engine = engine_settings(instance, SORT_MEMORY_BYTES)
    engine = replace(engine, threads=min(engine.threads, threads_max))
    return write_part(begun.target, batches, name, instance.root, engine)


def was_ingested(table: OpenTable, job_id: str) -> bool:
    """Whether the job is committed already. InvalidRequestError if its id has another one."""
    return earlier_commit(table.state, job_id, request_of_rows(job_id)) is not None


def commit_ingest(
    instance: Instance, begun: BegunIngest, job_id: str, files: Sequence[NewFile]
) -> IngestResult:
    """Adds all parts' files to the table, at once, if the job was not done before.

    StateMovedOnError if the table is gone.
    """
    table = OpenTable(instance, begun.ref)
    request = request_of_rows(job_id)
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
    """Tells the tracker that nothing was taken in. What was written is left to collection.

    Not deleted: whoever says so may not know that the commit was applied all the same.
    """
    _record(instance, begun, job_id, (JobStep.FAILED, {"reasons": (reason,)}))


def _record(
    instance: Instance,
    begun: BegunIngest,
    job_id: str,
    *steps: tuple[JobStep, Mapping[str, object]],
) -> None:
    """A tracker that does not answer must not fail a job that is committed."""
    run_id, now_ms = new_run_id(), instance.clock()

    def event(step: JobStep, at_ms: int, more: Mapping[str, object]) -> JobEvent:
        return JobEvent(begun.ref.id, job_id, JobKind.INGEST, step, at_ms, run_id, **more)  # type: ignore[arg-type]

    started = event(JobStep.STARTED, min(begun.target.run_start_ms, now_ms), {})
    try:
        instance.jobs.record(started, *(event(step, now_ms, more) for step, more in steps))
    except SleeperError:
        logger.warning("the tracker was not told", exc_info=True, extra={"job_id": job_id})
