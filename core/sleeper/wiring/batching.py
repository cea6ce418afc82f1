"""The ingest batcher of an instance: files submitted, and jobs made of them."""

import hashlib
import logging
from collections.abc import Sequence

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.ingest.job import IngestJob
from sleeper.ingest_batcher.batching import BatchJob, create_batches
from sleeper.ingest_batcher.planning import batch_limits
from sleeper.ingest_batcher.request import FileRequest, Submission, submission_from_message
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.jobs.queue import Message
from sleeper.properties.table import BATCHER_QUEUE, IngestQueue
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TABLE_NAME_LENGTH_MAX, TableId, TableRef
from sleeper.wiring.instance import Instance, OpenTable
from sleeper.wiring.queue_name import QueueName

logger = logging.getLogger(__name__)

_QUEUES = {
    IngestQueue.STANDARD_INGEST: QueueName.INGEST,
    IngestQueue.BULK_IMPORT_EMR: QueueName.BULK_IMPORT_EMR,
    IngestQueue.BULK_IMPORT_PERSISTENT_EMR: QueueName.BULK_IMPORT_PERSISTENT_EMR,
    IngestQueue.BULK_IMPORT_EMR_SERVERLESS: QueueName.BULK_IMPORT_EMR_SERVERLESS,
    IngestQueue.BULK_IMPORT_EKS: QueueName.BULK_IMPORT_EKS,
}


def submit_to_batcher(instance: Instance, name: str, files: Sequence[str]) -> int:
    """Hands files to the batcher; returns how many, where it knows them at once.

    Where the batcher has a queue, a message goes there and the paths are counted.
    """
    ref = instance.tables.by_name(name)
    if QueueName.INGEST_BATCHER in instance.queues:
        body = Submission(tuple(files), None, ref.id).to_message()
        instance.queue(QueueName.INGEST_BATCHER).send(body)
        return len(files)
    return _keep(instance, ref, new_run_id(), files, instance.clock())


def receive_batch_message(instance: Instance, message: Message) -> int:
    """Keeps the files of a message as waiting; returns how many.

    InvalidRequestError if it never can be, which the job tracker then says under the
    message's id. The message may come again: that adds nothing.
    """
    table_id = TableId("")
    try:
        submission = submission_from_message(message.body)
        called = submission.table_id or submission.table_name or ""
        # Cut to what a key may be.
        table_id = TableId(called[:TABLE_NAME_LENGTH_MAX])
        ref = find_table(instance.tables, submission.table_name, submission.table_id)
        table_id = ref.id
        return _keep(instance, ref, message.message_id, submission.files, message.sent_ms)
    except (InvalidRequestError, NotFoundError) as error:
        _record_rejection(instance, table_id, message.message_id, error)
        raise InvalidRequestError(str(error)) from error


def create_ingest_batches(instance: Instance, ref: TableRef) -> list[BatchJob]:
    """Sends the jobs of one table's waiting files that are due now."""
    properties = OpenTable(instance, ref).properties()
    # Without queues of platforms, there is one way in.
    has_platforms = QueueName.INGEST_BATCHER in instance.queues
    queue = _QUEUES[properties.get(BATCHER_QUEUE)] if has_platforms else QueueName.INGEST

    def send(job: BatchJob) -> None:
        body = IngestJob(job.id, job.files, table_id=job.table_id).to_message()
        instance.queue(queue).send(body)
        kind = JobKind.INGEST if queue is QueueName.INGEST else JobKind.BULK_IMPORT
        instance.jobs.record(
            JobEvent(
                job.table_id, job.id, kind, JobStep.CREATED, instance.clock(), inputs=len(job.files)
            )
        )

    return create_batches(
        ref.id, instance.file_requests(), batch_limits(properties), send, instance.clock
    )


def create_all_ingest_batches(instance: Instance) -> tuple[int, tuple[str, ...]]:
    """The same for every table. One that fails does not keep the others; returns why.

    Answers with the number of jobs sent and the problems.
    """
    sent, problems = 0, []
    for ref in instance.tables.list():
        try:
            sent += len(create_ingest_batches(instance, ref))
        except SleeperError as error:
            problems.append(f"table {ref.name}: {error}")
    return sent, tuple(problems)


def _keep(
    instance: Instance, ref: TableRef, message_id: str, paths: Sequence[str], received_ms: int
) -> int:
    found = [each for path in paths for each in instance.find_files(path)]
    requests = [
        FileRequest(ref.id, _request_id(message_id, file), file, size, received_ms)
        for file, size in found
    ]
    instance.file_requests().add(requests)
    return len(requests)


def _request_id(message_id: str, file: str) -> str:
    """The same when the message comes again, whatever a prefix holds by then."""
    return f"{message_id}-{hashlib.sha256(file.encode()).hexdigest()[:16]}"


def _record_rejection(
    instance: Instance, table_id: TableId, job_id: str, error: SleeperError
) -> None:
    now = instance.clock()
    event = JobEvent(
        table_id,
        job_id,
        JobKind.INGEST,
        JobStep.REJECTED,
        now,
        new_run_id(),
        reasons=(str(error),),
    )
    instance.jobs.record(event)
