"""Runs bulk exports of tables, and records them in the job tracker."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from sleeper.bulk_export.run import (
    EXPORT_JOBS,
    BulkExportJob,
    BulkExportResult,
    ExportFolder,
    plan_export,
    read_finished_export,
    write_export,
)
from sleeper.errors import DataError, InvalidRequestError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.ingest_job import new_job_id
from sleeper.jobs.queue import Message
from sleeper.partitions.region import Region
from sleeper.query.engine import QueryEngine
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.rows.output import write_parquet
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table
from sleeper.reports.access import check_export_access
from sleeper.runs.task import record_task
from sleeper.runs.tracking import RunResult, find_job_table, track_run
from sleeper.storage.bucket import Bucket, is_s3_url, split_s3_url
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId


def export_table(
    instance: Instance,
    table_name: str,
    output: str | Path | None = None,
    export_id: str | None = None,
) -> BulkExportResult:
    """Exports a table now, below a folder, `s3://bucket/prefix`, or the instance's exports root.

    NotFoundError if the table does not exist.
    """
    instance.tables.index.find(table_name)
    job = BulkExportJob(export_id or new_job_id(), table_name)
    with record_task(instance, JobKind.BULK_EXPORT) as task:
        root = instance.storage.exports() if output is None else _open_root(instance, str(output))
        result = _run(instance, job, root, task.id)
        rows = 0 if result.done_before else result.rows
        task.add_job(rows, rows)
    return result


def run_bulk_export_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> BulkExportResult:
    """Runs the export of a message. Records an invalid message as rejected under its own id."""
    try:
        job = EXPORT_JOBS.parse(message.body, message.message_id)
    except InvalidRequestError as error:
        track_run(instance, JobKind.BULK_EXPORT, TableId(""), message.message_id).reject(error)
        raise
    table = find_job_table(instance, JobKind.BULK_EXPORT, job)
    try:
        check_export_access(table, message.sender)
    except InvalidRequestError as error:
        track_run(instance, JobKind.BULK_EXPORT, table.ref.id, job.id).reject(error)
        raise
    return _run(instance, job, instance.storage.exports(), task_id)


def _run(
    instance: Instance, job: BulkExportJob, root: DataRoot, task_id: str | None
) -> BulkExportResult:
    table = find_job_table(instance, JobKind.BULK_EXPORT, job)
    folder = ExportFolder(root, table.ref.id, job.id)

    def work(_: JobRunRef) -> BulkExportResult:
        return read_finished_export(folder) or _export(table, folder)

    tracker = track_run(instance, JobKind.BULK_EXPORT, table.ref.id, job.id, task_id)
    return tracker.execute(work, lambda r: RunResult(None if r.done_before else r.rows))


def _export(table: OpenTable, folder: ExportFolder) -> BulkExportResult:
    shared = table.instance.queries.engine()
    # The limits of queries do not apply to a whole table. An export may serve as a backup, so
    # its input is always verified.
    settings = replace(shared.settings, rows_max=0, seconds_max=0, verifies_checksums=True)
    engine = QueryEngine(settings, shared.clock)
    query_table = make_query_table(table)
    plan = plan_export(folder, table.state)

    def write(region: Region, version: int, sink: BinaryIO) -> int:
        query = Query((region,), version=version)
        with run_query(query, query_table, engine, is_held=True) as rows:
            return write_parquet(rows.schema, rows, sink)

    try:
        with _hold_version(table, plan.version, folder.export_id, engine):
            return write_export(folder, plan, write, engine.settings.engine.threads)
    except (StateMovedOnError, DataError):
        # Files are missing also if the table was deleted.
        table.check_active()
        raise


@contextmanager
def _hold_version(
    table: OpenTable, version: int, export_id: str, engine: QueryEngine
) -> Iterator[None]:
    owner = f"bulk export {export_id}"
    hold = VersionHold(table.state, version, engine.settings.hold_seconds, engine.clock, owner)
    try:
        hold.acquire()
    except StateMovedOnError as error:
        raise InvalidRequestError(
            f"export {export_id}: version {version} is not kept any more: export again under "
            f"another id ({error})"
        ) from error
    try:
        yield
    finally:
        hold.release()


def _open_root(instance: Instance, place: str) -> DataRoot:
    if not is_s3_url(place):
        return DataRoot(Path(place).resolve())
    bucket, prefix = split_s3_url(place)
    own = next(iter(instance.storage.root.buckets), Bucket(bucket))
    return DataRoot(replace(own, name=bucket, prefix=prefix.strip("/")))
