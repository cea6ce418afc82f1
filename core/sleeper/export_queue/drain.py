"""Drains buckets: gives their exports to the queue's exporter, and deletes what was exported.

A worker claims the buckets, so that each has one exporter at a time. Items are deleted after the
exporter returned, so a worker that dies in between, or whose claim ends, only causes repetitions.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from sleeper.clock import Clock
from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.export_queue.failures import (
    HungCallError,
    backoff_seconds,
    describe_bucket,
    describe_failure,
    is_refusal,
)
from sleeper.export_queue.isolation import (
    Budget,
    FailedCallError,
    RefusedRows,
    isolate,
    reject_item,
    reject_rows,
)
from sleeper.export_queue.rows import merge_items, split_rows
from sleeper.export_queue.store import (
    BucketStatus,
    ExportStore,
    NewDeadLetter,
    PendingItem,
    open_export_store,
)
from sleeper.instance import Instance
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)

CLAIM_SECONDS = 10.0
RENEWAL_SECONDS = 3.0
# Rows may be much larger than their items, which are compressed.
_ROWS_BYTES_MAX = 64 * 1024**2


@dataclass(slots=True)
class DrainReport:
    """What drains did.

    `exports` were exported in `calls` of the exporter, and `dead` became dead letters. `failed`
    counts failures that the storage has, whose errors are in `problems`. `hung` counts calls that
    did not return: the process should end when its other work is done.
    """

    exports: int = 0
    calls: int = 0
    dead: int = 0
    failed: int = 0
    hung: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: "DrainReport") -> None:
        """Adds what another drain did."""
        self.exports += other.exports
        self.calls += other.calls
        self.dead += other.dead
        self.failed += other.failed
        self.hung += other.hung
        self.problems += other.problems


def may_call(store: ExportStore, queue: ExportQueue, generation: int) -> bool:
    """Returns whether the exporter may be called: no if the queue is paused, or a new one."""
    registered = store.find(queue.name)
    return registered.generation == generation and not registered.is_paused


def drain_buckets(
    instance: Instance,
    queue: ExportQueue,
    generation: int,
    buckets: Sequence[BucketStatus],
    exporter: Exporter,
    owner: str,
    until: Callable[[], bool] = lambda: False,
) -> DrainReport:
    """Exports buckets until they are empty, a call fails or `until` is true, between two calls.

    A call has the exports of all buckets. If it fails with several, that is no failure of a bucket:
    they are drained one by one, which finds the bucket at fault. `buckets` are recent.

    Leaves out buckets that another worker has. Ends if the queue is paused or deleted, also if
    there is a new one of its name, which has another generation. `owner` is the worker's own random
    id. UnavailableError if the store does not respond.
    """
    store = open_export_store(instance)
    drain = _Drain(store, instance.clock, queue, generation, exporter, owner, until)
    try:
        drain.run(buckets)
    except FailedCallError as failed:
        logger.info(
            "export queue %s: %d buckets together: %s", queue.name, len(buckets), failed.error
        )
        for each in buckets:
            # After a call that does not return, the exporter takes no other.
            if drain.report.hung or until():
                break
            drain.run([each])
    return drain.report


@dataclass(slots=True)
class _Drain:
    """A drain of the buckets that it has claimed."""

    store: ExportStore
    clock: Clock
    queue: ExportQueue
    generation: int
    exporter: Exporter
    owner: str
    until: Callable[[], bool]
    report: DrainReport = field(default_factory=DrainReport)
    claimed: dict[int, BucketStatus] = field(default_factory=dict)

    def run(self, buckets: Sequence[BucketStatus]) -> None:
        """Claims and drains buckets. FailedCallError if they are to be drained one by one."""
        store, name = self.store, self.queue.name
        what = f"bucket {buckets[0].bucket}" if len(buckets) == 1 else f"{len(buckets)} buckets"
        self.claimed = {}
        try:
            with ExitStack() as stack:
                for each in buckets:
                    if store.claim(name, each.bucket, self.owner, CLAIM_SECONDS):
                        stack.callback(store.release, name, each.bucket, self.owner)
                        self.claimed[each.bucket] = each
                renewal = Renewal(
                    f"renewal of the claim on {what} of queue {name}",
                    self._renew_claims,
                    RENEWAL_SECONDS,
                    ends_on=(StateMovedOnError, NotFoundError),
                )
                stack.enter_context(renewal)
                while self._export_next():
                    pass
        except _StoppedError:
            pass
        except NotFoundError:
            logger.info("export queue %s was deleted", name)
        except StateMovedOnError as error:
            # The new owner of the bucket exports the same again, which is harmless.
            logger.warning("%s", error)

    def _renew_claims(self) -> None:
        """Extends the claims. StateMovedOnError if other workers have all buckets."""
        claims = {
            bucket: self.store.claim(self.queue.name, bucket, self.owner, CLAIM_SECONDS)
            for bucket in self.claimed
        }
        if claims and not any(claims.values()):
            where = describe_bucket(self.queue, min(claims))
            raise StateMovedOnError(f"{where}: the claim has ended")

    def _export_next(self) -> bool:
        """Exports the first items of the buckets. False if there is none, or a call failed."""
        self._check_may_call()
        queue = self.queue
        # After a worker died, the first item is exported alone, because it may be the cause.
        deaths = max(each.deaths for each in self.claimed.values()) if len(self.claimed) == 1 else 0
        size = 1 if deaths else queue.buffer_bytes
        read = {bucket: self.store.read(queue.name, bucket, size) for bucket in self.claimed}
        items = {bucket: first for bucket, first in read.items() if first}
        if deaths >= queue.tries:
            for bucket, first in items.items():
                reason = f"{deaths} workers died while they exported it"
                dead = reject_item(queue, bucket, first[0], reason)
                self._settle(bucket, first[:1], [dead])
            return bool(items)
        return bool(items) and self._export(items)

    def _export(self, items: Mapping[int, Sequence[PendingItem]]) -> bool:
        """Exports items and deletes them. False if a call failed."""
        try:
            try:
                self._export_together(items)
            except FailedCallError as failed:
                if len(items) > 1 or not self._is_last_try(min(items), failed.error):
                    raise
                # Each item is deleted on its own, because the isolation may take long.
                for bucket, first in items.items():
                    for item in first:
                        self._export_alone(bucket, item, failed)
        except FailedCallError as failed:
            # After a call that does not return, the next process drains buckets one by one.
            if len(items) > 1 and not isinstance(failed.error, HungCallError):
                raise
            for bucket in items:
                self._record_failure(bucket, failed.error, failed.rows if len(items) == 1 else None)
            return False
        return True

    def _is_last_try(self, bucket: int, error: Exception) -> bool:
        return is_refusal(error) and self.claimed[bucket].refusals + 1 >= self.queue.tries

    def _export_together(self, items: Mapping[int, Sequence[PendingItem]]) -> None:
        bytes_max = None if len(items) == 1 else _ROWS_BYTES_MAX
        contents = (item.content for first in items.values() for item in first)
        try:
            rows = merge_items(self.queue, contents, bytes_max)
        except DataError as error:
            raise FailedCallError(error) from error
        for batch in split_rows(rows, bytes_max or self.queue.buffer_bytes):
            refusal = self._call(min(items), batch)
            if refusal is not None:
                raise FailedCallError(refusal, batch)
        for bucket, first in items.items():
            self._settle(bucket, first)
        self.report.exports += rows.num_rows

    def _export_alone(self, bucket: int, item: PendingItem, failed: FailedCallError) -> None:
        """Exports an item without refused exports. `failed` was a call, perhaps with some of it."""
        try:
            rows = merge_items(self.queue, [item.content])
        except DataError as error:
            self._settle(bucket, [item], [reject_item(self.queue, bucket, item, str(error))])
            return
        refused: list[RefusedRows] = []
        budget = Budget()
        for batch in split_rows(rows, self.queue.buffer_bytes):
            is_made = failed.rows is not None and batch.equals(failed.rows)
            refusal = failed.error if is_made else None
            refused += isolate(partial(self._call, bucket), batch, budget, refusal)
        dead = reject_rows(self.queue, bucket, refused)
        self._settle(bucket, [item], dead)
        self.report.exports += rows.num_rows - sum(each.exports for each in dead)

    def _call(self, bucket: int, rows: pa.RecordBatch) -> Exception | None:
        """Calls the exporter and returns its error. _StoppedError if no call may begin."""
        self._check_may_call()
        self.report.calls += 1
        try:
            self.exporter.export(ExportBatch(self.queue, bucket, rows))
        except Exception as error:
            self.report.hung += isinstance(error, HungCallError)
            return error
        return None

    def _check_may_call(self) -> None:
        if self.until() or not may_call(self.store, self.queue, self.generation):
            raise _StoppedError

    def _settle(
        self, bucket: int, items: Sequence[PendingItem], dead: Sequence[NewDeadLetter] = ()
    ) -> None:
        removed = [item.id for item in items]
        self.store.settle(self.queue.name, bucket, self.owner, removed, dead)
        self.claimed[bucket] = replace(self.claimed[bucket], failures=0, refusals=0, deaths=0)
        for each in dead:
            self.report.dead += each.exports
            self._add_problem(f"{each.error} (now a dead letter)", logging.WARNING)

    def _record_failure(self, bucket: int, error: Exception, rows: pa.RecordBatch | None) -> None:
        self.report.failed += 1
        text = f"{describe_bucket(self.queue, bucket, rows)}: {describe_failure(error)}"
        # A receiver may be unavailable for days, so the drain of the queue warns once.
        self._add_problem(text, logging.INFO)
        backoff = backoff_seconds(self.claimed[bucket].failures + 1)
        due_ms = self.clock() + int(1000 * backoff)
        self.store.record_failure(
            self.queue.name, bucket, self.owner, text, is_refusal(error), due_ms
        )

    def _add_problem(self, text: str, level: int) -> None:
        logger.log(level, "%s", text)
        self.report.problems.append(text)


class _StoppedError(Exception):
    """The drain ends between two calls."""
