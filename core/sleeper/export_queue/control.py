"""Reports on export queues, and their control: what commands and the Python API need.

Every function raises NotFoundError if no queue has the name.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.errors import DataError, InvalidRequestError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.listings import QueueStatus, find_failing, find_state
from sleeper.export_queue.properties import EXPORT_QUEUE_PENDING_BYTES_MAX
from sleeper.export_queue.registration import find_queue
from sleeper.export_queue.rows import decode_rows, merge_items, rows_schema
from sleeper.export_queue.store import ExportStore, open_export_store
from sleeper.instance import Instance

BUCKETS_PER_TABLET_DEFAULT = 10


@dataclass(frozen=True, slots=True)
class PeekedExports:
    """Pending exports of one bucket, or with an `error` those of a dead letter.

    `rows` has the columns of `rows.rows_schema`.
    """

    bucket: int
    rows: pa.RecordBatch
    error: str | None = None
    died_ms: int | None = None


def queue_status(instance: Instance, name: str) -> QueueStatus:
    """Returns the state of a queue."""
    store = open_export_store(instance)
    open_queue = find_queue(instance, name)
    queue = open_queue.definition
    statuses = store.buckets(name)
    counts = store.counts(name)
    return QueueStatus(
        name=name,
        table=open_queue.table.ref.name,
        on=queue.source.value,
        exporter=queue.exporter.shown,
        buckets=queue.buckets,
        state=find_state(open_queue.registered, open_queue.generation, statuses),
        lag=open_queue.lag,
        pending=counts.pending,
        pending_bytes=counts.bytes,
        dead=counts.dead,
        oldest_ms=min((each.oldest_ms for each in statuses), default=None),
        failing=find_failing(statuses),
        is_full=counts.bytes > instance.properties().get(EXPORT_QUEUE_PENDING_BYTES_MAX),
    )


def peek(
    instance: Instance, name: str, bucket: int | None = None, limit: int = 20, dead: bool = False
) -> list[PeekedExports]:
    """Returns the first pending exports, or the oldest dead ones, and changes nothing.

    At most `limit` rows in all; only those of one bucket if it is given. Items that are damaged
    are left out.
    """
    queue = find_queue(instance, name).definition
    if bucket is not None and not 0 <= bucket < queue.buckets:
        raise InvalidRequestError(
            f"export queue {name!r} has no bucket {bucket} (expected 0 to {queue.buckets - 1})"
        )
    find = _dead_exports if dead else _pending_exports
    peeked: list[PeekedExports] = []
    for each in find(open_export_store(instance), queue, bucket, limit):
        if limit <= 0:
            break
        peeked.append(replace(each, rows=each.rows.slice(0, limit)))
        limit -= each.rows.num_rows
    return peeked


def _pending_exports(
    store: ExportStore, queue: ExportQueue, bucket: int | None, _limit: int
) -> Iterator[PeekedExports]:
    for status in store.buckets(queue.name):
        if bucket is None or status.bucket == bucket:
            items = store.read(queue.name, status.bucket, queue.buffer_bytes)
            with suppress(DataError):
                rows = merge_items(queue, [item.content for item in items])
                yield PeekedExports(status.bucket, rows)


def _dead_exports(
    store: ExportStore, queue: ExportQueue, bucket: int | None, limit: int
) -> Iterator[PeekedExports]:
    for dead in store.dead_letters(queue.name, limit):
        if bucket is None or dead.bucket == bucket:
            with suppress(DataError):
                rows = decode_rows(queue, dead.content)
                yield PeekedExports(dead.bucket, rows, dead.error, dead.died_ms)


def peeked_schema(queue: ExportQueue, dead: bool) -> pa.Schema:
    """Returns the schema of `peeked_rows`."""
    schema = rows_schema(queue).insert(0, pa.field("bucket", pa.int64()))
    schema = schema.set(2, pa.field("gone", pa.bool_()))
    return schema.append(pa.field("error", pa.string())) if dead else schema


def peeked_rows(schema: pa.Schema, peeked: Sequence[PeekedExports]) -> Iterator[pa.RecordBatch]:
    """Yields exports as rows with their buckets, and with the errors of dead letters."""
    for each in peeked:
        size = each.rows.num_rows
        columns = [pa.repeat(pa.scalar(each.bucket, pa.int64()), size), *each.rows.columns]
        if len(schema) > len(columns):
            columns.append(pa.repeat(pa.scalar(each.error or "", pa.string()), size))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def pause_queue(instance: Instance, name: str) -> None:
    """Pauses a queue: calls that have begun end, and no other begins. It goes on capturing."""
    open_export_store(instance).pause(name, True)


def resume_queue(instance: Instance, name: str) -> int:
    """Resumes a queue. Buckets that wait after a failure are due at once; returns their number."""
    store = open_export_store(instance)
    store.pause(name, False)
    return store.retry_now(name)


def redrive(instance: Instance, name: str) -> int:
    """Makes the dead letters of a queue pending exports again. Returns the number of exports."""
    return open_export_store(instance).redrive(name)


def split_points(name: str, buckets: int, buckets_per_tablet: int) -> tuple[str, ...]:
    """Returns the recommended split points of a queue's storage: `<name>:<bucket>`.

    The bucket is in hexadecimal, as wide as the number of buckets, so text order is number order.
    """
    if buckets_per_tablet < 1:
        raise InvalidRequestError(
            f"{buckets_per_tablet} buckets per tablet is out of range (expected at least 1)"
        )
    width = len(f"{buckets:x}")
    starts = range(buckets_per_tablet, buckets, buckets_per_tablet)
    return tuple(f"{name}:{bucket:0{width}x}" for bucket in starts)
