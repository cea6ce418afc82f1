"""Makes jobs of a table's waiting files, so that each job is sent, under one id."""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import ConflictError
from sleeper.ingest_batcher.planning import BatchLimits, plan_batches
from sleeper.ingest_batcher.request import FileRequest, FileRequests
from sleeper.tables.table_ref import TableId

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
