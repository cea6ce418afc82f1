"""Which waiting files become jobs now: a decision without side effects."""

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
from sleeper.tables.table_ref import TableId


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When files become a job, and how big it may be."""

    size_min_bytes: int
    size_max_bytes: int
    files_min: int
    files_max: int
    file_age_max_ms: int


def batch_limits(properties: TableProperties) -> BatchLimits:
    """The table's limits. No job has more files than can be assigned at once."""
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
    """The batches that go now, each the requests of one job; oldest first.

    Batches are filled in the order of the requests. A full one goes; so does the last if it
    has the minimum of files and size, or a file that waited too long. A file that is larger
    than a job may be is a job of its own.
    """
    filled = list(_filled(requests, limits))
    if filled and not _may_go(filled[-1], limits, now_ms):
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


def _may_go(batch: list[FileRequest], limits: BatchLimits, now_ms: int) -> bool:
    size_bytes = sum(request.size_bytes for request in batch)
    oldest_ms = min(request.received_ms for request in batch)
    is_enough = size_bytes >= limits.size_min_bytes and len(batch) >= limits.files_min
    is_full = len(batch) >= limits.files_max or size_bytes >= limits.size_max_bytes
    return is_enough or is_full or now_ms - oldest_ms >= limits.file_age_max_ms


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job to be sent: an id, and the files without repeats in the order of their requests."""

    table_id: TableId
    id: str
    files: tuple[str, ...]


SendJob = Callable[[BatchJob], None]
"""Sends the job durably. It may be sent more than once, always the same."""


def create_batches(
    table_id: TableId, requests: FileRequests, limits: BatchLimits, send: SendJob, clock: Clock
) -> list[BatchJob]:
    """Sends the jobs that are due, and again those that an earlier run may not have sent."""
    waiting = requests.waiting(table_id)
    sent = [_send(assigned, requests, send) for assigned in _whole_jobs(waiting)]
    free = [request for request in waiting if request.job_id is None]
    for batch in plan_batches(free, limits, clock()):
        job_id = uuid.uuid4().hex
        try:
            requests.assign(job_id, batch)
        except ConflictError:
            # Another run has some of them; what it left is for the next.
            logger.info("batch was taken by another run", extra={"table": table_id})
            continue
        assigned = [replace(each, job_id=job_id, job_files=len(batch)) for each in batch]
        sent.append(_send(assigned, requests, send))
    return sent


def _whole_jobs(waiting: Sequence[FileRequest]) -> list[list[FileRequest]]:
    """The jobs that were assigned and not marked as sent.

    Requests are assigned and marked all at once, so a job that is seen in part is only
    seen too early: the next run sees it whole, or not at all.
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
