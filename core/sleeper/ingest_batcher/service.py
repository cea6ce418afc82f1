"""The ingest batcher of an instance: submission of files and creation of jobs."""

import hashlib
import logging
from collections.abc import Sequence

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.ingest_batcher.plan import BatchJob, batch_limits, create_batches
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.jobs.file_requests import SUBMISSIONS, FileRequest, Submission
from sleeper.jobs.ingest_job import INGEST_JOBS, IngestJob
from sleeper.jobs.queue import Message, QueueName
from sleeper.properties.table import (
    BATCHER_QUEUE,
    INGEST_ENRICHMENT,
    TYPE,
    IngestQueue,
    TableType,
)
from sleeper.runs.tracking import track_run, unknown_table_id
from sleeper.tables import TableId, TableRef, TableState, find_table

logger = logging.getLogger(__name__)

_FILES_NAMED_MAX = 5
_QUEUES = {
    IngestQueue.STANDARD_INGEST: QueueName.INGEST,
    IngestQueue.BULK_IMPORT_EMR: QueueName.BULK_IMPORT_EMR,
    IngestQueue.BULK_IMPORT_PERSISTENT_EMR: QueueName.BULK_IMPORT_PERSISTENT_EMR,
    IngestQueue.BULK_IMPORT_EMR_SERVERLESS: QueueName.BULK_IMPORT_EMR_SERVERLESS,
    IngestQueue.BULK_IMPORT_EKS: QueueName.BULK_IMPORT_EKS,
}


def submit_to_batcher(instance: Instance, name: str, files: Sequence[str]) -> int:
    """Submits files to the batcher. Returns the number of files found.

    An instance with a batcher queue sends a message and returns the number of paths.
    InvalidRequestError for a snapshot table.
    """
    ref = instance.tables.index.find(name)
    _check_type(instance, ref)
    if QueueName.INGEST_BATCHER in instance.jobs.queues:
        # A client that loses the response of SQS sends the message again, under another id.
        submission = Submission(tuple(files), table_id=ref.id, first_message_id=new_run_id())
        body = SUBMISSIONS.format(submission)
        instance.jobs.queue(QueueName.INGEST_BATCHER).send(body)
        return len(files)
    return _keep(instance, ref, new_run_id(), files, instance.clock())


def receive_batch_message(instance: Instance, message: Message) -> int:
    """Stores the files of a message as waiting. Returns their number.

    InvalidRequestError if the message is invalid: the job tracker then records a rejection under
    the id of the message. A redelivered or redriven message adds nothing.
    """
    table_id, message_id = TableId(""), message.message_id
    try:
        submission = SUBMISSIONS.parse(message.body, message_id)
        message_id = submission.first_message_id or message_id
        table_id = unknown_table_id(submission.table_name, submission.table_id)
        ref = find_table(instance.tables.index, submission.table_name, submission.table_id)
        table_id = ref.id
        return _keep(instance, ref, message_id, submission.files, message.sent_ms)
    except (InvalidRequestError, NotFoundError) as error:
        track_run(instance, JobKind.INGEST, table_id, message_id).reject(error)
        raise InvalidRequestError(str(error)) from error


def create_ingest_batches(instance: Instance, ref: TableRef) -> list[BatchJob]:
    """Sends the due jobs of the waiting files of a table."""
    properties = OpenTable(instance, ref).properties()
    # A local instance has one ingest queue for all kinds of job.
    has_platforms = QueueName.INGEST_BATCHER in instance.jobs.queues
    # Only ingests fill the fields of an enrichment.
    is_enriched = properties.get(INGEST_ENRICHMENT) is not None
    has_choice = has_platforms and not is_enriched
    queue = _QUEUES[properties.get(BATCHER_QUEUE)] if has_choice else QueueName.INGEST

    def send(job: BatchJob) -> None:
        body = INGEST_JOBS.format(IngestJob(job.id, job.files, table_id=job.table_id))
        instance.jobs.queue(queue).send(body)
        kind = JobKind.INGEST if queue is QueueName.INGEST else JobKind.BULK_IMPORT
        instance.jobs.tracker.record(
            JobEvent(
                job.table_id, job.id, kind, JobStep.CREATED, instance.clock(), inputs=len(job.files)
            )
        )

    return create_batches(
        ref.id, instance.jobs.file_requests(), batch_limits(properties), send, instance.clock
    )


def create_due_batches(
    instance: Instance, _due_ms: int | None = None
) -> tuple[bool, tuple[str, ...]]:
    """Sends the due jobs of every table. Returns whether there were any, and the errors."""
    sent, problems = create_all_ingest_batches(instance)
    return sent > 0, problems


def create_all_ingest_batches(instance: Instance) -> tuple[int, tuple[str, ...]]:
    """Sends the due jobs of every table. Returns the job count and the errors.

    A failure of one table does not affect others. Files of deleted tables are rejected.
    """
    sent, problems = 0, []
    for table_id in instance.jobs.file_requests().tables():
        name: str = table_id
        try:
            ref = _find_table(instance, table_id)
            name = name if ref is None else ref.name
            if ref is None or ref.state is not TableState.ACTIVE:
                _reject_waiting(instance, table_id, name)
            else:
                sent += len(create_ingest_batches(instance, ref))
        except SleeperError as error:
            problems.append(f"table {name}: {error}")
    return sent, tuple(problems)


def _find_table(instance: Instance, table_id: TableId) -> TableRef | None:
    try:
        return instance.tables.index.get(table_id)
    except NotFoundError:
        return None


def _reject_waiting(instance: Instance, table_id: TableId, name: str) -> None:
    """Records a rejection with the job tracker, then discards the files.

    The rejection has the id of the assigned job, or else of the message that named the files.
    """
    waiting = instance.jobs.file_requests().waiting(table_id)
    by_job: dict[str, list[FileRequest]] = {}
    for request in waiting:
        by_job.setdefault(request.job_id or _parse_message_id(request), []).append(request)
    for job_id in instance.jobs.tracker.unknown(table_id, list(by_job)):
        paths = [request.path for request in by_job[job_id]]
        named = ", ".join(paths[:_FILES_NAMED_MAX])
        more = f" and {len(paths) - _FILES_NAMED_MAX} more" if len(paths) > _FILES_NAMED_MAX else ""
        reason = f"table {name} was deleted before the ingest batcher sent {named}{more}"
        track_run(instance, JobKind.INGEST, table_id, job_id).reject(NotFoundError(reason))
    instance.jobs.file_requests().discard(waiting)
    logger.warning("%d files waited for a deleted table", len(waiting), extra={"table": table_id})


def _check_type(instance: Instance, ref: TableRef) -> None:
    # The function on AWS reads no states.
    if OpenTable(instance, ref).properties().get(TYPE) is TableType.SNAPSHOT:
        raise InvalidRequestError(
            f"table {ref.name!r} is a snapshot table, which each ingest job replaces, so the "
            "batcher cannot divide its files among jobs (expected an ingest that names all files)"
        )


def _keep(
    instance: Instance, ref: TableRef, message_id: str, paths: Sequence[str], received_ms: int
) -> int:
    _check_type(instance, ref)
    matches = [each for path in paths for each in instance.storage.sources.find(path)]
    requests = [
        FileRequest(ref.id, _request_id(message_id, file), file, size, received_ms)
        for file, size in matches
    ]
    instance.jobs.file_requests().add(requests)
    return len(requests)


def _request_id(message_id: str, file: str) -> str:
    """Returns an id that is stable if the message is redelivered and the prefix has other files."""
    return f"{message_id}-{hashlib.sha256(file.encode()).hexdigest()[:16]}"


def _parse_message_id(request: FileRequest) -> str:
    return request.id.rpartition("-")[0]
