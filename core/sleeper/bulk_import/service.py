"""Tracked bulk imports into a table of an instance, on the caller's cluster."""

from collections.abc import Sequence
from dataclasses import replace

from sleeper.bulk_import.run import (
    BulkImportResult,
    BulkImportTable,
    OnStage,
    OpenCluster,
    ignore_stage,
    run_bulk_import,
)
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.ingest_job import IngestJob, new_job_id
from sleeper.jobs.queue import Message
from sleeper.properties.instance import BULK_IMPORT_TASK_MEMORY_BYTES
from sleeper.properties.table import (
    BULK_IMPORT_LEAF_BYTES_MIN,
    BULK_IMPORT_LEAVES_MIN,
    EXTRA_COLUMNS_REFUSED,
)
from sleeper.runs.engine import engine_settings, file_settings
from sleeper.runs.enrichment import refuse_enrichment
from sleeper.runs.task import record_task
from sleeper.runs.tracking import RunResult, find_job_table, parse_file_job, track_run


def bulk_import_paths(
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    cluster: OpenCluster,
    job_id: str | None = None,
    on_stage: OnStage = ignore_stage,
) -> BulkImportResult:
    """Imports files now. NotFoundError if the table does not exist."""
    instance.tables.index.find(table_name)
    job = IngestJob(
        job_id or new_job_id(), tuple(map(instance.storage.sources.job_name, paths)), table_name
    )
    return _run(instance, job, cluster, on_stage)


def run_bulk_import_message(
    instance: Instance, message: Message, cluster: OpenCluster, run_id: str | None = None
) -> BulkImportResult:
    """Runs the job of a message. An invalid or too old message is tracked as rejected.

    `run_id` is the id of the run that a platform accepted.
    """
    job = parse_file_job(instance, message, JobKind.BULK_IMPORT)
    return _run(instance, job, cluster, ignore_stage, run_id)


def _run(
    instance: Instance,
    job: IngestJob,
    cluster: OpenCluster,
    on_stage: OnStage,
    run_id: str | None = None,
) -> BulkImportResult:
    table = find_job_table(instance, JobKind.BULK_IMPORT, job)

    def work(_: JobRunRef) -> BulkImportResult:
        if job.op_column is not None:
            raise InvalidRequestError(
                f"bulk import job {job.id}: operations in column {job.op_column!r} (expected none: "
                "only ingests apply them)"
            )
        files = [instance.storage.sources.open(name) for name in job.files]
        target = replace(bulk_import_table(table), options=job.options)
        return run_bulk_import(target, job.id, files, job.request, cluster, on_stage)

    with record_task(instance, JobKind.BULK_IMPORT) as task:
        tracker = track_run(instance, JobKind.BULK_IMPORT, table.ref.id, job.id, task.id, run_id)
        result = tracker.execute(
            work, lambda r: RunResult(None if r.done_before else r.rows), inputs=len(job.files)
        )
        task.add_job(result.rows, result.rows)
    return result


def bulk_import_table(table: OpenTable) -> BulkImportTable:
    """Returns the table as the target of an import.

    InvalidRequestError if the table has fields that its ingests fill.
    """
    refuse_enrichment(table, "a bulk import")
    properties = table.properties()
    with table.state.reading() as state:
        schema = state.schema
    return BulkImportTable(
        table.ref.id,
        schema,
        table.state,
        table.instance.storage.root,
        engine_settings(table.instance, BULK_IMPORT_TASK_MEMORY_BYTES),
        table.instance.clock,
        file_settings(properties),
        properties.get(BULK_IMPORT_LEAVES_MIN),
        table.ref.online,
        properties.get(EXTRA_COLUMNS_REFUSED),
        table.check_active,
        leaf_bytes_min=properties.get(BULK_IMPORT_LEAF_BYTES_MIN),
    )
