"""Jobs that name files for a table: checked before they run, tracked as rejected if unfit."""

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind
from sleeper.jobs.ingest_job import IngestJob, ingest_job_from_message
from sleeper.jobs.queue import Message
from sleeper.runs.tracked_job import TrackedJob
from sleeper.statestore.fold import APPLIED_ID_DAYS, DAY_MS
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TABLE_NAME_LENGTH_MAX, TableId

_NO_TABLE = TableId("")


def job_of_message(instance: Instance, message: Message, kind: JobKind) -> IngestJob:
    """The job of a message. One that is no job is tracked as rejected under its own id.

    So is one as old as the memory of the ids of committed jobs, on a queue that nobody
    worked on or among dead letters: it cannot be told any more whether it was taken in.
    """
    try:
        job = ingest_job_from_message(message.body, message.message_id)
        instance.storage.sources.check_message(job.files)
    except InvalidRequestError as error:
        TrackedJob(instance, kind, _NO_TABLE, message.message_id).reject(error)
        raise
    age_ms = instance.clock() - message.sent_ms
    if age_ms > (APPLIED_ID_DAYS - 1) * DAY_MS:
        too_old = InvalidRequestError(
            f"ingest job {job.id} was sent {age_ms // DAY_MS} days ago: ids of committed jobs are "
            f"kept {APPLIED_ID_DAYS} days, so send it again if its rows are not there"
        )
        reject(instance, job, kind, too_old)
        raise too_old
    return job


def table_of_job(instance: Instance, job: IngestJob, kind: JobKind) -> OpenTable:
    """The job's table. InvalidRequestError, and tracked as rejected, if there is none."""
    try:
        return OpenTable(instance, find_table(instance.tables.index, job.table_name, job.table_id))
    except (NotFoundError, InvalidRequestError) as error:
        reject(instance, job, kind, error)
        raise InvalidRequestError(str(error)) from error


def reject(instance: Instance, job: IngestJob, kind: JobKind, error: SleeperError) -> None:
    """Tracks a job as rejected. Of one whose table is not known it is what it calls its table."""
    table_id = TableId((job.table_id or job.table_name or _NO_TABLE)[:TABLE_NAME_LENGTH_MAX])
    TrackedJob(instance, kind, table_id, job.id).reject(error)
