"""Batches of waiting files, and the jobs created from them."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import ConflictError
from sleeper.jobs.file_requests import FILES_PER_JOB_MAX, FileRequest, FileRequests
from sleeper.properties.table import (
    BATCHER_FILE_AGE_SECONDS,
    BATCHER_JOB_FILES_MAX,
    BATCHER_JOB_FILES_MIN,
    BATCHER_JOB_SIZE_MAX,
    BATCHER_JOB_SIZE_MIN,
)
from sleeper.properties.values import TableProperties
from sleeper.tables import TableId


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The thresholds for creating a job and the limits of its size."""

    size_min_bytes: int
    size_max_bytes: int
    files_min: int
    files_max: int
    file_age_max_ms: int


def batch_limits(properties: TableProperties) -> BatchLimits:
    """Returns the table's limits. No job has more files than can be assigned at once."""
    return BatchLimits(
        properties.get(BATCHER_JOB_SIZE_MIN),
        properties.get(BATCHER_JOB_SIZE_MAX),
        properties.get(BATCHER_JOB_FILES_MIN),
        min(properties.get(BATCHER_JOB_FILES_MAX), FILES_PER_JOB_MAX),
        properties.get(BATCHER_FILE_AGE_SECONDS) * 1000,
    )


def plan_batches(
    requests: Sequence[FileRequest], limits: BatchLimits, now_ms: int
) -> list[list[FileRequest]]:
    """Returns the batches that are due, oldest first, each with the requests of one job.

    Batches are filled in the order of the requests. A full batch is due. The last batch is due if
    it has the minimum of files and size, or a file that has waited too long. A file larger than
    the maximum size of a job forms its own job.
    """
    filled = list(_filled(requests, limits))
    if filled and not _is_due(filled[-1], limits, now_ms):
        filled.pop()
    return filled


def _filled(requests: Sequence[FileRequest], limits: BatchLimits) -> Iterator[list[FileRequest]]:
    batch: list[FileRequest] = []
    size_bytes = 0
    for request in requests:
        is_full = len(batch) >= limits.files_max
        if batch and (is_full or size_bytes + request.size_bytes > limits.size_max_bytes):
            yield batch
            batch, size_bytes = [], 0
        batch.append(request)
        size_bytes += request.size_bytes
    if batch:
        yield batch


def _is_due(batch: list[FileRequest], limits: BatchLimits, now_ms: int) -> bool:
    size_bytes = sum(request.size_bytes for request in batch)
    oldest_ms = min(request.received_ms for request in batch)
    is_enough = size_bytes >= limits.size_min_bytes and len(batch) >= limits.files_min
    is_full = len(batch) >= limits.files_max or size_bytes >= limits.size_max_bytes
    return is_enough or is_full or now_ms - oldest_ms >= limits.file_age_max_ms


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job to send: an id, and the distinct files in the order of their requests."""

    table_id: TableId
    id: str
    files: tuple[str, ...]


SendJob = Callable[[BatchJob], None]
"""Sends the job durably. It may send the same job more than once."""


def create_batches(
    table_id: TableId, requests: FileRequests, limits: BatchLimits, send: SendJob, clock: Clock
) -> list[BatchJob]:
    """Sends the jobs that are due, and resends jobs that an interrupted run assigned."""
    waiting = requests.waiting(table_id)
    sent = [_send(assigned, requests, send) for assigned in _whole_jobs(waiting)]
    free = [request for request in waiting if request.job_id is None]
    for batch in plan_batches(free, limits, clock()):
        job_id = uuid.uuid4().hex
        try:
            requests.assign(job_id, batch)
        except ConflictError:
            # Another run assigned some of them; the next run takes the rest.
            logger.info("batch assigned by another run", extra={"table": table_id})
            continue
        assigned = [replace(each, job_id=job_id, job_files=len(batch)) for each in batch]
        sent.append(_send(assigned, requests, send))
    return sent


def _whole_jobs(waiting: Sequence[FileRequest]) -> list[list[FileRequest]]:
    """Returns the requests of each job that is assigned and not marked as sent.

    Assigning and marking are atomic, but listing may lag. A partial job is skipped: the next run
    finds it complete or not at all.
    """
    by_job: dict[str, list[FileRequest]] = {}
    for request in waiting:
        if request.job_id is not None:
            by_job.setdefault(request.job_id, []).append(request)
    return [job for job in by_job.values() if len(job) == job[0].job_files]


def _send(assigned: list[FileRequest], requests: FileRequests, send: SendJob) -> BatchJob:
    first = assigned[0]
    assert first.job_id is not None
    ordered = sorted(assigned, key=lambda r: (r.received_ms, r.id))
    job = BatchJob(first.table_id, first.job_id, tuple(dict.fromkeys(r.path for r in ordered)))
    send(job)
    requests.mark_sent(assigned)
    logger.info("ingest job sent", extra={"job_id": job.id, "table": job.table_id})
    return job
