"""Tracked ingests of files and rows into a table of an instance."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from sleeper.datafiles.sources.enrichment import make_source_schema
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from sleeper.ingest.run import (
    IngestProgress,
    IngestResult,
    IngestTable,
    TableEnrichment,
    ingest_batches,
    ingest_files,
    make_operations,
)
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep
from sleeper.jobs.ingest_job import INGEST_JOBS, IngestJob, new_job_id
from sleeper.jobs.queue import Message, QueueName
from sleeper.processing.enrichment import enriched_names, parse_enrichment
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.properties.table import (
    EXTRA_COLUMNS_REFUSED,
    FILE_WRITING_STRATEGY,
    INGEST_COMMIT_ASYNC,
    INGEST_ENRICHMENT,
)
from sleeper.runs.commit import choose_commit
from sleeper.runs.descent import table_descent
from sleeper.runs.engine import engine_settings, file_settings
from sleeper.runs.task import record_task
from sleeper.runs.tracking import RunResult, find_job_table, parse_file_job, track_run
from sleeper.schema.model import Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS, STANDARD_INPUT, SourceOptions
from sleeper.tracing import Span, span


def ingest_paths(
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    job_id: str | None = None,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
    op_column: str | None = None,
    options: SourceOptions = DEFAULT_OPTIONS,
    standard_input: Path | None = None,
) -> IngestResult:
    """Ingests files in this process. `op_column` is the column of the rows' operations.

    `options` say how the files are read. The path `-` stands for `standard_input`.
    """
    name = instance.storage.sources.job_name
    files = tuple(path if path == STANDARD_INPUT else name(path) for path in paths)
    job = IngestJob(job_id or new_job_id(), files, table_name, op_column=op_column, options=options)
    with record_task(instance, JobKind.INGEST) as task:
        result = run_ingest_job(
            instance, job, task.id, rejects, progress, standard_input=standard_input
        )
        task.add_job(result.rows, result.rows)
    return result


@contextmanager
def annotate_errors(job_id: str, parameter: str) -> Iterator[None]:
    """Adds the job's id to an error or interrupt after which the rows may be in the table.

    `parameter` is what the caller repeats the job with.
    """
    text = f"job not confirmed; repeating it with {parameter}={job_id!r} adds no row twice"
    try:
        yield
    except (InvalidRequestError, NotFoundError):
        raise
    except (ConflictError, UnavailableError) as error:
        raise type(error)(f"{error}; {text}") from error
    except (Exception, KeyboardInterrupt) as error:
        error.add_note(text)
        raise


def submit_ingest(
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    job_id: str | None = None,
    op_column: str | None = None,
    options: SourceOptions = DEFAULT_OPTIONS,
) -> str:
    """Sends a job to the ingest queue and returns its id. The files must exist until it ran."""
    ref = instance.tables.index.find(table_name)
    with instance.table(table_name).state.reading() as state:
        make_operations(state.schema, op_column)
    for path in paths:
        instance.storage.sources.check_submitted(path)
    job = IngestJob(
        job_id or new_job_id(),
        tuple(map(instance.storage.sources.job_name, paths)),
        table_id=ref.id,
        op_column=op_column,
        options=options,
    )
    instance.jobs.queue(QueueName.INGEST).send(INGEST_JOBS.format(job))
    event = JobEvent(
        ref.id,
        job.id,
        JobKind.INGEST,
        JobStep.CREATED,
        instance.clock(),
        inputs=len(job.files),
    )
    instance.jobs.tracker.record(event)
    return job.id


def ingest_rows(
    instance: Instance,
    table_name: str,
    batches: Iterable[pa.RecordBatch],
    job_id: str | None = None,
    progress: IngestProgress | None = None,
    op_column: str | None = None,
    options: SourceOptions = DEFAULT_OPTIONS,
) -> IngestResult:
    """Ingests Arrow batches in this process. Rows of the same job id are added once."""
    chosen = job_id or new_job_id()
    table = instance.table(table_name)
    with record_task(instance, JobKind.INGEST) as task, trace_ingest(table, chosen):
        result = track_run(instance, JobKind.INGEST, table.ref.id, chosen, task.id).execute(
            lambda _: ingest_batches(
                ingest_table(table),
                chosen,
                batches,
                describe_rows_job(chosen),
                progress,
                op_column,
                options,
            ),
            describe_run,
        )
        task.add_job(result.rows, result.rows)
    return result


def run_ingest_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> IngestResult:
    """Runs the job of a message. An invalid or too old message is tracked as rejected."""
    job = parse_file_job(instance, message, JobKind.INGEST)
    return run_ingest_job(instance, job, task_id, may_queue=True)


def run_queued_ingest(instance: Instance, message: Message, task_id: str) -> tuple[int, int]:
    """Runs the job of a message. Returns the numbers of rows read and written."""
    rows = run_ingest_message(instance, message, task_id).rows
    return rows, rows


def run_ingest_job(
    instance: Instance,
    job: IngestJob,
    task_id: str | None = None,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
    may_queue: bool = False,
    standard_input: Path | None = None,
) -> IngestResult:
    """Runs and tracks a job. A job that can never succeed is tracked as rejected.

    With `may_queue` the table's properties decide if the committer commits it.
    """
    table = find_job_table(instance, JobKind.INGEST, job)

    def run(this: JobRunRef) -> IngestResult:
        sources = instance.storage.sources
        files = [
            standard_input if standard_input and name == STANDARD_INPUT else sources.open(name)
            for name in job.files
        ]
        target = ingest_table(table)
        if may_queue:
            target = replace(
                target, commit=partial(choose_commit(table, INGEST_COMMIT_ASYNC), this)
            )
        return ingest_files(
            target, job.id, files, job.request, rejects, progress, job.op_column, job.options
        )

    tracker = track_run(instance, JobKind.INGEST, table.ref.id, job.id, task_id)
    with trace_ingest(table, job.id):
        return tracker.execute(run, describe_run, inputs=len(job.files))


def trace_ingest(table: OpenTable, job_id: str) -> Span:
    """Starts the span of an ingest, for a `with` block."""
    return span("ingest", table.ref.name, job_id=job_id)


def describe_rows_job(job_id: str) -> str:
    """Returns the fingerprint of a job of rows, which consists of its id only."""
    return json.dumps({"rows of job": job_id})


def ingest_table(table: OpenTable) -> IngestTable:
    """Returns the table as the target of an ingest."""
    properties = table.properties()
    with table.state.reading() as state:
        schema = state.schema
    declared = properties.get(INGEST_ENRICHMENT)
    enrichment = None
    if declared is not None:
        lookups = parse_enrichment(declared)
        # The schema is that of the job, also if it changes meanwhile.
        opener = partial(table.instance.open_enrichment, table, lookups, schema)
        enrichment = TableEnrichment(lookups, opener)
    strategy = FileStrategy(properties.get(FILE_WRITING_STRATEGY).value)
    is_shared = strategy is FileStrategy.ONE_REFERENCE_PER_LEAF
    return IngestTable(
        table.ref.id,
        schema,
        table.state,
        table.instance.storage.root,
        engine_settings(table.instance, SORT_MEMORY_BYTES),
        table.instance.clock,
        file_settings(properties),
        strategy,
        properties.get(EXTRA_COLUMNS_REFUSED),
        enrichment=enrichment,
        descent=table_descent(properties) if is_shared else None,
    )


def find_source_schema(table: OpenTable) -> Schema:
    """Returns the schema of sources of the table, which may lack the fields that are filled."""
    declared = table.properties().get(INGEST_ENRICHMENT)
    with table.state.reading() as state:
        schema = state.schema
    if declared is None:
        return schema
    return make_source_schema(schema, enriched_names(parse_enrichment(declared)))


def describe_run(result: IngestResult) -> RunResult:
    """Returns what the tracker records of an ingest."""
    rows = None if result.done_before else result.rows
    return RunResult(rows, result.queued, rejected=result.rejected or None)
