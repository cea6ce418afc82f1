"""Ingest of files and rows into a table of an instance, tracked."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from sleeper.datafiles.bucket import is_s3_url
from sleeper.datafiles.partitioned_write import FileStrategy
from sleeper.datafiles.s3_file import s3_file
from sleeper.datafiles.sources import Rejects, SourceFile
from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.ingest.job import IngestJob, ingest_job_from_message, new_job_id
from sleeper.ingest.run import (
    IngestProgress,
    IngestResult,
    IngestTable,
    ingest_batches,
    ingest_files,
)
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, new_run_id
from sleeper.jobs.queue import Message
from sleeper.properties.engine import SORT_MEMORY_BYTES
from sleeper.properties.table import FILE_WRITING_STRATEGY, INGEST_COMMIT_ASYNC
from sleeper.schema.json import schema_from_json
from sleeper.statestore.fold import APPLIED_ID_DAYS, DAY_MS
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TABLE_NAME_LENGTH_MAX, TableId
from sleeper.wiring.commits import commits_of
from sleeper.wiring.engine import engine_settings, file_settings
from sleeper.wiring.instance import Instance, OpenTable
from sleeper.wiring.own_task import own_task
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.source_files import readable_buckets

logger = logging.getLogger(__name__)

_NO_TABLE = TableId("")
_REASON_CHARACTERS_MAX = 2_000
_LOCAL_SCHEME = "file://"


def ingest_paths(
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    job_id: str | None = None,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Takes in files now, in this process."""
    job = IngestJob(job_id or new_job_id(), _absolute(instance, paths), table_name)
    with own_task(instance, JobKind.INGEST) as (task_id, done):
        result = run_ingest_job(instance, job, task_id, rejects, progress)
        done(result.rows)
    return result


def submit_ingest(
    instance: Instance, table_name: str, paths: Sequence[str], job_id: str | None = None
) -> str:
    """Sends a job to the ingest queue; returns its id. The files must stay until it ran."""
    ref = instance.tables.by_name(table_name)
    for path in paths:
        _check_submittable(instance, path)
    job = IngestJob(job_id or new_job_id(), _absolute(instance, paths), table_id=ref.id)
    instance.queue(QueueName.INGEST).send(job.to_message())
    event = JobEvent(
        ref.id,
        job.id,
        JobKind.INGEST,
        JobStep.CREATED,
        instance.clock(),
        inputs=len(job.files),
    )
    instance.jobs.record(event)
    return job.id


def ingest_rows(
    instance: Instance,
    table_name: str,
    batches: Iterable[pa.RecordBatch],
    job_id: str | None = None,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Takes in Arrow batches now, in this process. With an id, its content counts once."""
    chosen = job_id or new_job_id()
    table = instance.table(table_name)
    request = json.dumps({"rows of job": chosen})
    with own_task(instance, JobKind.INGEST) as (task_id, done):
        result = _tracked(
            table,
            chosen,
            task_id,
            None,
            lambda _: ingest_batches(_ingest_table(table), chosen, batches, request, progress),
        )
        done(result.rows)
    return result


def run_ingest_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> IngestResult:
    """Runs the job of a message. One that is no job is tracked as rejected under its own id.

    So is one as old as the memory of the ids of committed jobs, on a queue that nobody
    worked on or among dead letters: it cannot be told any more whether it was taken in.
    """
    try:
        job = ingest_job_from_message(message.body, message.message_id)
        _refuse_local_files(instance, job)
    except InvalidRequestError as error:
        _record_rejection(instance, _NO_TABLE, message.message_id, error)
        raise
    age_ms = instance.clock() - message.sent_ms
    if age_ms > (APPLIED_ID_DAYS - 1) * DAY_MS:
        too_old = InvalidRequestError(
            f"ingest job {job.id} was sent {age_ms // DAY_MS} days ago: ids of committed jobs are "
            f"kept {APPLIED_ID_DAYS} days, so send it again if its rows are not there"
        )
        _record_rejection(instance, _table_id_of(job), job.id, too_old)
        raise too_old
    return run_ingest_job(instance, job, task_id, may_queue=True)


def run_ingest_job(
    instance: Instance,
    job: IngestJob,
    task_id: str | None = None,
    rejects: Rejects | None = None,
    progress: IngestProgress | None = None,
    may_queue: bool = False,
) -> IngestResult:
    """Runs a job and tracks it. A job that cannot ever succeed is tracked as rejected.

    With `may_queue` the committer commits it, if the table's properties say so.
    """
    try:
        ref = find_table(instance.tables, job.table_name, job.table_id)
    except (NotFoundError, InvalidRequestError) as error:
        _record_rejection(instance, _table_id_of(job), job.id, error)
        raise InvalidRequestError(str(error)) from error
    table = OpenTable(instance, ref)

    def run(this: JobRunRef) -> IngestResult:
        files = [_source_file(instance, name) for name in job.files]
        place = _ingest_table(table)
        if may_queue:
            place = replace(place, commit=partial(commits_of(table, INGEST_COMMIT_ASYNC), this))
        return ingest_files(place, job.id, files, job.request, rejects, progress)

    return _tracked(table, job.id, task_id, len(job.files), run)


def _tracked(
    table: OpenTable,
    job_id: str,
    task_id: str | None,
    inputs: int | None,
    work: Callable[[JobRunRef], IngestResult],
) -> IngestResult:
    instance = table.instance
    run = JobRunRef(table.ref.id, job_id, JobKind.INGEST, new_run_id(), task_id)
    instance.jobs.record(run.event(JobStep.STARTED, instance.clock(), inputs=inputs))
    try:
        result = work(run)
    except SleeperError as error:
        is_hopeless = isinstance(error, InvalidRequestError)
        step = JobStep.REJECTED if is_hopeless else JobStep.FAILED
        _record_end(instance, run.event(step, instance.clock(), reasons=(str(error),)))
        raise
    except BaseException as error:
        reasons = (repr(error),)
        _record_end(instance, run.event(JobStep.FAILED, instance.clock(), reasons=reasons))
        raise
    now_ms = instance.clock()
    rows = None if result.done_before else result.rows
    finished = run.event(JobStep.FINISHED, now_ms, rows_read=rows, rows_written=rows)
    if result.queued:
        # The message is done: it must not return because of a tracker.
        _record_end(instance, finished)
    else:
        instance.jobs.record(finished, run.event(JobStep.COMMITTED, now_ms))
    return result


def _record_end(instance: Instance, end: JobEvent) -> None:
    """A tracker that does not answer, on a full disk perhaps, must not hide how a job ended."""
    logger.info("ingest job %s", end.step.value, extra={"job_id": end.job_id})
    try:
        instance.jobs.record(end)
    except SleeperError:
        logger.warning("the tracker was not told", exc_info=True, extra={"job_id": end.job_id})


def _ingest_table(table: OpenTable) -> IngestTable:
    properties = table.properties()
    with table.state.reading() as state:
        schema = schema_from_json(state.schema_json)
    return IngestTable(
        table.ref.id,
        schema,
        table.state,
        table.instance.root,
        engine_settings(table.instance, SORT_MEMORY_BYTES),
        table.instance.clock,
        file_settings(properties),
        FileStrategy(properties.get(FILE_WRITING_STRATEGY).value),
    )


def _record_rejection(
    instance: Instance, table_id: TableId, job_id: str, error: SleeperError
) -> None:
    instance.jobs.record(
        JobEvent(
            table_id,
            job_id,
            JobKind.INGEST,
            JobStep.REJECTED,
            instance.clock(),
            new_run_id(),
            reasons=(str(error)[:_REASON_CHARACTERS_MAX],),
        )
    )


def _table_id_of(job: IngestJob) -> TableId:
    """Of a job whose table is not known: what it calls its table, cut to what a key may be."""
    return TableId((job.table_id or job.table_name or _NO_TABLE)[:TABLE_NAME_LENGTH_MAX])


def _absolute(instance: Instance, paths: Sequence[str]) -> tuple[str, ...]:
    """Names by which this process, whatever its folder, finds the files."""
    return tuple(p if is_s3_url(p) else _absolute_path(instance, p) for p in paths)


def _absolute_path(instance: Instance, path: str) -> str:
    if instance.is_local:
        return str(Path(path).resolve())
    if not Path(path).exists():
        raise InvalidRequestError(
            f"file {path} does not exist on this machine; one in S3 is named s3://bucket/key"
        )
    return f"{_LOCAL_SCHEME}{Path(path).resolve()}"


def _check_submittable(instance: Instance, path: str) -> None:
    """Whoever takes the job from the queue must be able to read the file."""
    if is_s3_url(path):
        return
    if not instance.is_local:
        raise InvalidRequestError(
            f"file {path} is not in S3, where the tasks of an AWS instance read: upload it and "
            "name it s3://bucket/key, or leave out --submit to take it in from here"
        )
    if not Path(path).exists():
        raise InvalidRequestError(f"file {path} does not exist")


def _refuse_local_files(instance: Instance, job: IngestJob) -> None:
    """The disk of a task is nothing that a message may name."""
    for name in job.files:
        if not instance.is_local and name.startswith(_LOCAL_SCHEME):
            raise InvalidRequestError(f"file {name} is not in S3: expected s3://bucket/key")


def _source_file(instance: Instance, name: str) -> SourceFile:
    # A bare `bucket/key` is how other clients name an object.
    if is_s3_url(name) or not (instance.is_local or name.startswith(_LOCAL_SCHEME)):
        return s3_file(name, readable_buckets(instance.root, instance.properties()))
    return Path(name.removeprefix(_LOCAL_SCHEME))
