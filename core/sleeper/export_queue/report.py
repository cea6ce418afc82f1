"""Listings of export queues, and of exports."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from sleeper.clock import iso_time
from sleeper.export_queue.control import FailingBucket, PeekedExports, QueueStatus
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.listings import QUEUE_COLUMNS
from sleeper.export_queue.properties import EXPORT_QUEUE_PENDING_BYTES_MAX
from sleeper.export_queue.rows import rows_schema
from sleeper.reports.output import Column, Listing, Value, pluralize
from sleeper.reports.text_table import format_bytes

_FAILING_SHOWN = 10
# What a line says itself. See `failures.describe_bucket`.
_BUCKET = re.compile(r"export queue '[^']*', bucket \d+(, sequences? \d+( to \d+)?)?: ")


def describe_status(status: QueueStatus) -> Listing:
    """Describes one queue: a row, which text output shows as lines."""
    summary = f"export queue {status.name} of table {status.table}: {status.state.value}"
    rows = (tuple(column.read(status) for column in _STATUS_COLUMNS),)
    return Listing("export-queue", summary, _STATUS_COLUMNS, rows, tuple(_draw(status)))


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


def _failing(status: QueueStatus) -> Value:
    return [
        {
            "bucket": each.bucket,
            "exports": each.exports,
            "failures": each.failures,
            "refusals": each.refusals,
            "deaths": each.deaths,
            "is_unavailable": each.is_unavailable,
            "error": each.error,
            "due": iso_time(each.due_ms) if each.due_ms else None,
        }
        for each in status.failing
    ]


def _draw(status: QueueStatus) -> Iterator[str]:
    oldest = "" if status.oldest_ms is None else f", the oldest since {iso_time(status.oldest_ms)}"
    dead = ": see `sleeper export-queue peek --dead`" if status.dead else ""
    yield f"  on        {status.on}"
    yield f"  exporter  {status.exporter}"
    yield f"  buckets   {status.buckets:,}"
    yield f"  lag       {pluralize(status.lag, 'transaction')} not taken up"
    pending = f"{pluralize(status.pending, 'export')}, {format_bytes(status.pending_bytes)}"
    yield f"  pending   {pending}{oldest}"
    if status.is_full:
        limit = EXPORT_QUEUE_PENDING_BYTES_MAX.name
        yield f"  full      nothing is taken up: the pending exports exceed {limit}"
    yield f"  dead      {pluralize(status.dead, 'export')}{dead}"
    # An unavailable receiver fails every bucket with one error.
    groups: dict[str, list[FailingBucket]] = {}
    for each in status.failing:
        groups.setdefault(_BUCKET.sub("", each.error, count=1), []).append(each)
    for error, buckets in islice(groups.items(), _FAILING_SHOWN):
        yield f"  failing   {_describe_failing(buckets)}: {error}"
    if len(groups) > _FAILING_SHOWN:
        more = pluralize(len(groups) - _FAILING_SHOWN, "more error")
        yield f"            and {more}: see --output json"


def _describe_failing(buckets: Sequence[FailingBucket]) -> str:
    what = f"bucket {buckets[0].bucket}" if len(buckets) == 1 else f"{len(buckets):,} buckets"
    refusals = max(each.refusals for each in buckets)
    refused = f", {pluralize(refusals, 'refusal')}" if refusals else ""
    due_ms = min(each.due_ms for each in buckets)
    due = f"at {iso_time(due_ms)}" if due_ms else "now"
    exports = pluralize(sum(each.exports for each in buckets), "export")
    return f"{what} with {exports}{refused}, next call {due}"


_STATUS_COLUMNS = (
    *QUEUE_COLUMNS,
    Column("buckets", "Buckets"),
    Column("is_full", "Full"),
    Column("failing", "Failing", value=_failing),
)
