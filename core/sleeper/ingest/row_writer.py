"""Writes the rows of many callers together: one file and one commit for all that wait.

A caller gets its answer when its rows are durable. While one group is written, the next one
gathers, so the rate grows with the number of callers. The id of a request is committed with the
rows, so that a repeated request adds no row twice.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from threading import Condition

import pyarrow as pa

from sleeper.datafiles.sources.budget import RowLimits
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.ingest.request_results import (
    WriteResult,
    check_request_id,
    pack_content,
    repeat_result,
)
from sleeper.ingest.run import IngestTable
from sleeper.ingest.service import ingest_table
from sleeper.ingest.small_rows import Content, ContentDecoder, write_small
from sleeper.instance import OpenTable
from sleeper.runs.commit import begin_run, commit_until_settled
from sleeper.statestore.fold import AppliedId
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.record_requests import RecordRequests, WriteRequest
from sleeper.statestore.transactions.transaction import Outcome, new_transaction_id
from sleeper.tracing import span

logger = logging.getLogger(__name__)
_NEXT_SECONDS_MAX = 0.01


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """The limits of one group, of all requests that wait, and of the rows of one from outside."""

    group_requests_max: int = 1_000
    group_bytes_max: int = 8 * 1024**2
    waiting_bytes_max: int = 32 * 1024**2
    waiting_requests_max: int = 10_000
    rows: RowLimits | None = None


@dataclass(slots=True, eq=False)
class _Request:
    """A request that waits, and the batches of its rows when they are decoded.

    `context` is that of the caller, which has its span.
    """

    id: str | None
    content: Content
    result: "Future[WriteResult]" = field(default_factory=Future)
    batches: Sequence[pa.RecordBatch] = ()
    rows: int = 0
    context: Context = field(default_factory=copy_context)

    def __post_init__(self) -> None:
        # A disconnect does not cancel the write.
        self.result.set_running_or_notify_cancel()

    @property
    def size(self) -> int:
        return len(self.content.data)

    def fail(self, error: Exception) -> None:
        self.batches = ()
        if not self.result.done():
            self.result.set_exception(error)

    def settle(self, number: int) -> None:
        self.batches = ()
        self.result.set_result(WriteResult(self.id, self.rows, number))

    def settle_earlier(self, earlier: AppliedId) -> None:
        """Answers as the earlier request did, or refuses another content under its id."""
        assert self.id is not None
        try:
            result = repeat_result(self.id, self.content.digest(), earlier)
        except ConflictError as error:
            self.fail(error)
        else:
            self.result.set_result(result)


OnGroup = Callable[[int, int, float], None]
"""Receives the requests and the rows of a committed group, and the seconds that it took."""


def ignore_group(_requests: int, _rows: int, _seconds: float) -> None:
    """Ignores a committed group."""


class RowWriter:
    """Writes rows to one table. Safe for threads.

    `open_table` returns the table of a group, and raises an error for all of its requests. The
    `executor` runs one group at a time.
    """

    def __init__(
        self,
        open_table: Callable[[], OpenTable],
        executor: Executor,
        limits: WriterLimits | None = None,
        on_group: OnGroup = ignore_group,
    ) -> None:
        self._open_table = open_table
        self._on_group = on_group
        self._executor = executor
        self._limits = limits or WriterLimits()
        self._lock = Condition()
        self._waiting: list[_Request] = []
        self._waiting_bytes = 0
        self._is_running = False

    def submit(self, content: Content, request_id: str | None = None) -> "Future[WriteResult]":
        """Takes a request, whose result is set when its rows are durable.

        UnavailableError if too many wait: nothing was taken, so try again later.
        InvalidRequestError for an invalid id.
        """
        if request_id is not None:
            check_request_id(request_id)
        request = _Request(request_id, content)
        with self._lock:
            self._check_space(request.size)
            self._waiting.append(request)
            self._waiting_bytes += request.size
            starts, self._is_running = not self._is_running, True
            self._lock.notify()
        if starts:
            self._executor.submit(self._run)
        return request.result

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or is written."""
        return not self._is_running

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    def _check_space(self, size: int) -> None:
        limits = self._limits
        is_full = self._waiting and (
            self._waiting_bytes + size > limits.waiting_bytes_max
            or len(self._waiting) >= limits.waiting_requests_max
        )
        if is_full:
            raise UnavailableError(
                f"{len(self._waiting):,} requests of {self._waiting_bytes:,} bytes wait to be "
                "written: try again later"
            )

    def _run(self) -> None:
        """Writes a group, and then further ones in turn with other work of the executor."""
        while group := self._take():
            start = time.monotonic()
            self._write(group, start)
            self._await_next(len(group), time.monotonic() - start)
            # An executor that shuts down takes no more work, but ends this.
            with contextlib.suppress(RuntimeError):
                self._executor.submit(self._run)
                return

    def _write(self, group: list[_Request], start: float) -> None:
        try:
            # The group is traced within its first request.
            written = group[0].context.run(self._write_traced, group)
            if written:
                rows = sum(request.rows for request in written)
                self._on_group(len(written), rows, time.monotonic() - start)
        except Exception as error:
            if not isinstance(error, SleeperError):
                logger.exception("cannot write rows of %d requests", len(group))
            for request in group:
                request.fail(error)

    def _write_traced(self, group: Sequence[_Request]) -> list[_Request]:
        table = self._open_table()
        with span("write", table.ref.name, requests=len(group)):
            return _write_group(table, group, self._limits.rows)

    def _await_next(self, answered: int, seconds: float) -> None:
        """Waits shortly for the next requests of the callers that were just answered.

        Otherwise two halves of the callers would take turns, and groups be half as large. Without
        other requests that wait, there is nothing to add to.
        """
        with self._lock:
            if self._waiting:
                enough = min(len(self._waiting) + answered, self._limits.group_requests_max)
                self._lock.wait_for(
                    lambda: len(self._waiting) >= enough, min(seconds / 4, _NEXT_SECONDS_MAX)
                )

    def _take(self) -> list[_Request]:
        """Returns the next group; none if the run ends."""
        with self._lock:
            count = size = 0
            for request in self._waiting[: self._limits.group_requests_max]:
                if count and size + request.size > self._limits.group_bytes_max:
                    break
                count, size = count + 1, size + request.size
            group = self._waiting[:count]
            del self._waiting[:count]
            self._waiting_bytes -= size
            self._is_running = bool(group)
            return group


def check_not_snapshot(table: OpenTable) -> None:
    """Raises InvalidRequestError for a snapshot table."""
    with table.state.reading(stale=True) as state:
        if state.is_snapshot_table:
            raise InvalidRequestError(
                f"table {table.ref.name!r} is a snapshot table, each load of which replaces all "
                "rows (expected an ingest)"
            )


def _write_group(
    table: OpenTable, group: Sequence[_Request], limits: RowLimits | None
) -> list[_Request]:
    """Writes the rows of the requests and sets their results. Raises the error of the others.

    Returns the requests whose rows were added.
    """
    target = ingest_table(table)
    check_not_snapshot(table)
    waiting = _settle_applied(target.state, group)
    written: list[_Request] = []
    while waiting:
        decoded, waiting = _decode(target, waiting, limits)
        written += _write_decoded(table, target, decoded)
        waiting = _settle_applied(target.state, waiting)
    return written


def _write_decoded(
    table: OpenTable, target: IngestTable, left: Sequence[_Request]
) -> list[_Request]:
    """Commits the decoded requests together. Returns those whose rows were added."""
    while left:
        distinct, repeated = _divide(left)
        outcome, files = _commit(table, target, distinct)
        if not outcome.refused:
            assert outcome.number is not None
            for request in distinct:
                request.settle(outcome.number)
            _settle_applied(target.state, repeated)
            return distinct
        # Another process may have committed some of the ids meanwhile.
        left = _settle_applied(target.state, left)
        _delete_files(table, files)
        if len(left) == len(distinct) + len(repeated):
            raise StateMovedOnError(f"rows for table {table.ref.name!r}: {outcome.reason}")
    return []


def _settle_applied(state: StateStore, requests: Sequence[_Request]) -> list[_Request]:
    """Answers the requests whose ids were committed before, and returns the others."""
    ids = [request.id for request in requests if request.id is not None]
    if not ids:
        return list(requests)
    with state.reading() as now:
        applied: Mapping[str, AppliedId] = now.jobs.requests(ids)
    left = []
    for request in requests:
        earlier = None if request.id is None else applied.get(request.id)
        if earlier is None:
            left.append(request)
        else:
            request.settle_earlier(earlier)
    return left


def _decode(
    table: IngestTable, requests: Sequence[_Request], limits: RowLimits | None
) -> tuple[list[_Request], list[_Request]]:
    """Decodes the rows of the first requests, as many as fit into memory together.

    Refuses those with invalid rows. Returns the decoded ones, and the requests that wait.
    """
    valid: list[_Request] = []
    count = 0
    decoded = ContentDecoder(table, limits).decode([request.content for request in requests])
    for request, rows in zip(requests, decoded, strict=False):
        count += 1
        if isinstance(rows, Exception):
            request.fail(rows)
            continue
        request.batches = rows
        request.rows = sum(batch.num_rows for batch in rows)
        if request.rows:
            valid.append(request)
        else:
            request.fail(InvalidRequestError("the request has no rows (expected at least one)"))
    return valid, list(requests[count:])


def _divide(requests: Sequence[_Request]) -> tuple[list[_Request], list[_Request]]:
    """Returns the first request of each id and those without, and the others."""
    ids: set[str] = set()
    distinct: list[_Request] = []
    repeated: list[_Request] = []
    for request in requests:
        if request.id is not None and request.id in ids:
            repeated.append(request)
            continue
        distinct.append(request)
        if request.id is not None:
            ids.add(request.id)
    return distinct, repeated


def _commit(
    table: OpenTable, target: IngestTable, requests: Sequence[_Request]
) -> tuple[Outcome, tuple[NewFile, ...]]:
    """Writes the rows and commits them with the ids. The outcome is that of the files."""
    start = begin_run(target.state, target.clock)
    batches = [batch for request in requests for batch in request.batches]
    files = write_small(target, batches, start)
    added = AddFiles(new_transaction_id(), start.ms, files)
    ids = [
        WriteRequest(request.id, pack_content(request.content.digest(), request.rows))
        for request in requests
        if request.id is not None
    ]
    changes = [RecordRequests(tuple(ids)), added] if ids else [added]
    commit_until_settled(table.check_active)
    try:
        outcomes = commit_until_settled(lambda: target.state.commit_together(*changes))
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}; write not confirmed: repeating it under its id adds no row twice"
        ) from error
    return outcomes[-1], files


def _delete_files(table: OpenTable, files: Sequence[NewFile]) -> None:
    """Deletes the files of a refused commit, which would be orphans for days."""
    paths = [new.file.path + end for new in files for end in ("", *new.file.sidecars)]
    try:
        table.instance.storage.root.delete(paths)
    except UnavailableError as error:
        logger.warning("could not delete files of a refused commit: %s", error)
