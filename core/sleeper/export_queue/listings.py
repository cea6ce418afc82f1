"""Reports on export queues: their states, their pending and dead exports, and their problems."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.export_queue.definition import describe_exporter
from sleeper.export_queue.failures import ends_by_itself
from sleeper.export_queue.properties import EXPORT_QUEUE_PENDING_BYTES_MAX
from sleeper.export_queue.store import BucketStatus, ExportStore, RegisteredQueue, open_export_store
from sleeper.export_queue.table_queries import StoredQueue, Uncaptured, find_uncaptured, queues_in
from sleeper.instance import Instance
from sleeper.reports.output import Column, ColumnKind, Listing, Value, describe_omission, pluralize
from sleeper.reports.problem import Problem, ProblemState
from sleeper.reports.text_table import format_bytes
from sleeper.tables import TableId, find_table

logger = logging.getLogger(__name__)

_FAILING_SHOWN = 10
_LATE_MS = 15 * 60_000
# What a line says itself. See `failures.describe_bucket`.
_BUCKET = re.compile(r"export queue '[^']*', bucket \d+(, sequences? \d+( to \d+)?)?: ")


class QueueState(Enum):
    """The state of a queue.

    - CREATING: its creation has not ended, or was interrupted.
    - ACTIVE: it captures and exports.
    - PAUSED: it captures, and its exporter gets nothing.
    - FAILING: the last call of the exporter failed for at least one bucket, or its worker died.
    - DELETING: its table does not have it any more, but its exports are still stored.
    - UNREADABLE: its table cannot be read.
    """

    CREATING = "creating"
    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    DELETING = "deleting"
    UNREADABLE = "unreadable"


def find_state(
    queue: RegisteredQueue, generation: int | None, buckets: Iterable[BucketStatus]
) -> QueueState:
    """Returns the state of a queue whose table is readable.

    `generation` is that of the queue of this name in the table, None if the table has none.
    """
    if not queue.generation:
        return QueueState.CREATING
    if generation != queue.generation:
        return QueueState.DELETING
    if queue.is_paused:
        return QueueState.PAUSED
    return QueueState.FAILING if find_failing(buckets) else QueueState.ACTIVE


@dataclass(frozen=True, slots=True)
class FailingBucket:
    """A bucket whose last call of the exporter failed; `error` is that of the last one.

    `deaths` counts workers that died while they exported it.

    `is_unavailable` means that the receiver was unavailable or did not return, which does not count
    as a refusal. The next call is at `due_ms`, 0 for now.
    """

    bucket: int
    exports: int
    failures: int
    refusals: int
    is_unavailable: bool
    error: str
    due_ms: int
    deaths: int = 0


def find_failing(buckets: Iterable[BucketStatus]) -> tuple[FailingBucket, ...]:
    """Returns the buckets whose last call failed, or whose worker died during it."""
    return tuple(
        FailingBucket(
            each.bucket,
            each.exports,
            each.failures,
            each.refusals,
            not ends_by_itself(each),
            each.error or f"{pluralize(each.deaths, 'worker')} died while exporting it",
            each.due_ms,
            each.deaths,
        )
        for each in buckets
        if each.failures or each.deaths
    )


QUEUE_COLUMNS = (
    Column("name", "Queue"),
    Column("table", "Table"),
    Column("on", "On"),
    Column("state", "State", value=lambda each: each.state.value),
    Column("lag", "Lag", ColumnKind.COUNT),
    Column("pending", "Pending", ColumnKind.COUNT),
    Column("pending_bytes", "Bytes", ColumnKind.BYTES),
    Column("dead", "Dead", ColumnKind.COUNT),
    Column("oldest", "Oldest", ColumnKind.TIME, lambda each: each.oldest_ms),
    Column("exporter", "Exporter"),
)
"""Columns of objects with these attributes, and `oldest_ms`. `lag` is in transactions."""


@dataclass(frozen=True, slots=True)
class ReportedQueue:
    """A queue; None is not known, because its creation has not ended or its table is unreadable.

    `uncaptured_ms` is the time of the first transaction that it has not captured, None without one.
    """

    name: str
    table: str | None
    on: str | None
    state: QueueState
    lag: int | None
    pending: int
    pending_bytes: int
    dead: int
    oldest_ms: int | None
    exporter: str | None
    failing: tuple[FailingBucket, ...]
    uncaptured_ms: int | None = None


def list_export_queues(
    instance: Instance, table_id: TableId | None = None, limit: int | None = None
) -> Listing:
    """Lists queues by name, with `table_id` those of one table."""
    queues = gather_export_queues(instance, table_id)
    return describe_queues(queues[:limit], len(queues))


def list_queues_of_table(instance: Instance, table_id: TableId) -> Sequence[Listing]:
    """Lists the queues of a table, if it has any."""
    listing = list_export_queues(instance, table_id)
    return [listing] if listing.rows else []


def describe_queues(queues: Sequence[ReportedQueue], total: int) -> Listing:
    """Describes queues, of `total` that exist."""
    omission = describe_omission(total, len(queues), "export queue")
    summary = pluralize(total, "export queue")
    return Listing.describe("export-queues", summary, QUEUE_COLUMNS, queues, omission)


def gather_export_queues(
    instance: Instance, table_id: TableId | None = None
) -> Sequence[ReportedQueue]:
    """Returns the queues, by name."""
    try:
        store = open_export_store(instance)
    except InvalidRequestError:
        return ()  # an instance on AWS without the part for export queues
    queues = [each for each in store.list() if table_id in (None, each.table_id)]
    gathered = []
    for queue in queues:
        with suppress(NotFoundError):  # deleted meanwhile
            gathered.append(_gather(instance, store, queue))
    return gathered


def find_lag(instance: Instance, table_id: TableId) -> int | None:
    """Returns the largest number of transactions that a queue of the table has to capture."""
    try:
        queues = open_export_store(instance).list()
    except InvalidRequestError:
        return None  # as in `gather_export_queues`
    tables = [_read_table(instance, each) for each in queues if each.table_id == table_id]
    return max((each.uncaptured.transactions for each in tables if each.uncaptured), default=None)


def _gather(instance: Instance, store: ExportStore, queue: RegisteredQueue) -> ReportedQueue:
    counts, buckets = store.counts(queue.name), store.buckets(queue.name)
    table = _read_table(instance, queue)
    stored, state = table.stored, QueueState.UNREADABLE
    if table.is_readable:
        state = find_state(queue, None if stored is None else stored.generation, buckets)
    return ReportedQueue(
        queue.name,
        table.name,
        None if stored is None else stored.source,
        state,
        None if table.uncaptured is None else table.uncaptured.transactions,
        counts.pending,
        counts.bytes,
        counts.dead,
        min((each.oldest_ms for each in buckets), default=None),
        None if stored is None else _describe_exporter(stored),
        find_failing(buckets),
        None if table.uncaptured is None else table.uncaptured.since_ms,
    )


def _describe_exporter(stored: StoredQueue) -> str:
    settings = json.loads(stored.definition)["exporter"]
    return describe_exporter(settings["text"], settings.get("options", {}))


@dataclass(frozen=True, slots=True)
class _QueueTable:
    """The table of a queue, the queue as the table has it, and what it has to capture."""

    name: str | None = None
    is_readable: bool = False
    stored: StoredQueue | None = None
    uncaptured: Uncaptured | None = None


def _read_table(instance: Instance, queue: RegisteredQueue) -> _QueueTable:
    name = None
    try:
        table = find_table(instance.tables.index, None, queue.table_id)
        name = table.name
        with instance.tables.state(table.id).reading() as state:
            stored = queues_in(state).find_or_none(queue.name)
            if stored is None:
                return _QueueTable(name, True)
            uncaptured = find_uncaptured(state, stored, queue.position.number)
            return _QueueTable(name, True, stored, uncaptured)
    except NotFoundError:
        return _QueueTable(name)
    except SleeperError as error:
        logger.warning("could not read the table of export queue %s: %s", queue.name, error)
        return _QueueTable(name)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The state of an export queue.

    `exporter` omits the parts of a URL that may be secret, and ends in `(insecure)` if the
    connection may be without verified TLS.
    `lag` is the number of transactions whose exports are not captured. `pending` exports of
    `pending_bytes` are stored, the oldest since `oldest_ms`; `dead` ones are dead letters. No more
    are captured while the queue `is_full`: its pending exports have too many bytes.
    """

    name: str
    table: str
    on: str
    exporter: str
    buckets: int
    state: QueueState
    lag: int
    pending: int
    pending_bytes: int
    dead: int
    oldest_ms: int | None
    failing: tuple[FailingBucket, ...]
    is_full: bool = False

    def describe_left(self) -> str:
        """Returns what the queue has, such as `2 exports pending`; an empty text for nothing."""
        counts = (
            (self.pending, "export", "pending"),
            (self.dead, "export", "dead"),
            (self.lag, "transaction", "not taken up"),
        )
        return ", ".join(f"{pluralize(n, noun)} {what}" for n, noun, what in counts if n)


def describe_status(status: QueueStatus) -> Listing:
    """Describes one queue: a row, which text output shows as lines."""
    summary = f"export queue {status.name} of table {status.table}: {status.state.value}"
    rows = (tuple(column.read(status) for column in _STATUS_COLUMNS),)
    return Listing("export-queue", summary, _STATUS_COLUMNS, rows, tuple(_draw(status)))


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


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the instance's export queues."""
    for queue in gather_export_queues(instance):
        if queue.dead:
            yield _problem(ProblemState.DEAD, queue, pluralize(queue.dead, "dead export"))
        if queue.state is QueueState.UNREADABLE:
            yield _problem(ProblemState.FAILING, queue, "its table cannot be read")
        elif queue.state is QueueState.FAILING:
            reason = (
                f"{pluralize(len(queue.failing), 'bucket')} of exports: {queue.failing[0].error}"
            )
            yield _problem(ProblemState.FAILING, queue, reason)
        elif queue.state is QueueState.ACTIVE:
            yield from _find_delays(queue, instance.clock() - _LATE_MS)


def _find_delays(queue: ReportedQueue, late_ms: int) -> Iterator[Problem]:
    """Yields what has waited since before a time: exports, and transactions to capture."""
    if queue.oldest_ms is not None and queue.oldest_ms < late_ms:
        yield _problem(ProblemState.LAGGING, queue, f"{queue.pending:,} pending exports")
    if queue.uncaptured_ms is not None and queue.uncaptured_ms < late_ms:
        reason = (
            f"{pluralize(queue.lag or 0, 'transaction')} not captured (expected `sleeper run`, or "
            "on AWS the function of export queues, to run)"
        )
        yield Problem(ProblemState.LAGGING, "export queue", queue.name, reason, queue.uncaptured_ms)


def _problem(state: ProblemState, queue: ReportedQueue, reason: str) -> Problem:
    return Problem(state, "export queue", queue.name, reason, queue.oldest_ms)
