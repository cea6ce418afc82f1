"""Which waiting files become jobs now: a decision without side effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sleeper.ingest_batcher.request import FILES_PER_JOB_MAX, FileRequest
from sleeper.properties.table import (
    BATCHER_FILE_AGE_SECONDS,
    BATCHER_JOB_FILES_MAX,
    BATCHER_JOB_FILES_MIN,
    BATCHER_JOB_SIZE_MAX,
    BATCHER_JOB_SIZE_MIN,
)
from sleeper.properties.values import TableProperties


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
