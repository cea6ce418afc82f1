"""Drains a bucket: gives its exports to the queue's exporter, and deletes what was exported.

A worker claims the bucket, so that one exporter at a time has it. Items are deleted after the
exporter returned, so a worker that dies in between, or whose claim ends, only causes repetitions.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.export_queue.batches import merge_items, split_rows
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.export_queue.failures import (
    HungCallError,
    backoff_seconds,
    describe_failure,
    describe_place,
    is_refusal,
)
from sleeper.export_queue.isolation import (
    Budget,
    FailedCallError,
    RefusedRows,
    isolate,
    make_damaged_letter,
    make_dead_letters,
    make_deadly_letter,
)
from sleeper.export_queue.rows import rows_schema
from sleeper.instance import Instance
from sleeper.jobs.export_store import BucketStatus, ExportStore, NewDeadLetter, PendingItem
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)

CLAIM_SECONDS = 10.0
RENEWAL_SECONDS = 3.0


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


def drain_bucket(
    instance: Instance,
    queue: ExportQueue,
    generation: int,
    bucket: int,
    exporter: Exporter,
    owner: str,
    until: Callable[[], bool] = lambda: False,
    status: BucketStatus | None = None,
) -> DrainReport:
    """Exports a bucket until it is empty, a call fails or `until` is true, between two calls.

    Does nothing if another worker has the bucket or the queue is paused. Ends if the queue is
    deleted, also if there is a new one of its name, which has another generation. `owner` is the
    worker's own random id. `status` is a recent one of the bucket, if it is known.
    UnavailableError if the store does not respond.
    """
    store = instance.jobs.export_store()
    drain = _Drain(instance, store, queue, generation, bucket, exporter, owner, until)
    try:
        if status is None:
            found = [each for each in store.buckets(queue.name) if each.bucket == bucket]
            if not found:
                return drain.report
            status = found[0]
        if not store.claim(queue.name, bucket, owner, CLAIM_SECONDS):
            return drain.report
        try:
            with Renewal(
                f"renewal of the claim on bucket {bucket} of queue {queue.name}",
                drain.renew_claim,
                RENEWAL_SECONDS,
                ends_on=(StateMovedOnError, NotFoundError),
            ):
                drain.run(status)
        finally:
            store.release(queue.name, bucket, owner)
    except _StoppedError:
        pass
    except NotFoundError:
        logger.info("export queue %s was deleted", queue.name)
    except StateMovedOnError as error:
        # The new owner of the bucket exports the same again, which is harmless.
        logger.warning("%s", error)
    return drain.report


@dataclass(slots=True)
class _Drain:
    """A drain of one bucket, whose claim the worker has."""

    instance: Instance
    store: ExportStore
    queue: ExportQueue
    generation: int
    bucket: int
    exporter: Exporter
    owner: str
    until: Callable[[], bool]
    report: DrainReport = field(default_factory=DrainReport)
    _failures: int = 0
    _refusals: int = 0

    def renew_claim(self) -> None:
        """Extends the claim. StateMovedOnError if another worker has the bucket."""
        if not self.store.claim(self.queue.name, self.bucket, self.owner, CLAIM_SECONDS):
            place = describe_place(self.queue, self.bucket)
            raise StateMovedOnError(f"{place}: the claim has ended")

    def run(self, status: BucketStatus) -> None:
        """Exports the items, those of one read together, until there is none."""
        self._failures, self._refusals = status.failures, status.refusals
        deaths = status.deaths
        while not self._must_stop():
            # After a worker died, the first item is exported alone, because it may be the cause.
            size = 1 if deaths else self.queue.buffer_bytes
            items = self.store.read(self.queue.name, self.bucket, size)
            if not items:
                return
            if deaths >= self.queue.tries:
                letter = make_deadly_letter(self.queue, self.bucket, items[0], deaths)
                self._settle(items[:1], 0, [letter])
            elif not self._export(items):
                return
            deaths = 0

    def _export(self, items: Sequence[PendingItem]) -> bool:
        """Exports items and deletes them. False if a call failed."""
        try:
            try:
                self._export_together(items)
            except FailedCallError as failed:
                if not is_refusal(failed.error) or self._refusals + 1 < self.queue.tries:
                    raise
                # Each item is deleted on its own, because the isolation may take long.
                for item in items:
                    self._export_alone(item, failed if len(items) == 1 else None)
        except FailedCallError as failed:
            self._record_failure(failed.error, failed.rows)
            return False
        self._failures = self._refusals = 0
        return True

    def _export_together(self, items: Sequence[PendingItem]) -> None:
        try:
            rows = merge_items(self.queue, [item.content for item in items])
        except DataError as error:
            raise FailedCallError(error, _no_rows(self.queue)) from error
        for batch in split_rows(rows, self.queue.buffer_bytes):
            refusal = self._call(batch)
            if refusal is not None:
                raise FailedCallError(refusal, batch)
        self._settle(items, rows.num_rows, [])

    def _export_alone(self, item: PendingItem, failed: FailedCallError | None) -> None:
        """Exports an item without refused exports. `failed` is a failed call with some of it."""
        try:
            rows = merge_items(self.queue, [item.content])
        except DataError as error:
            self._settle([item], 0, [make_damaged_letter(self.queue, self.bucket, item, error)])
            return
        refused: list[RefusedRows] = []
        budget = Budget()
        for batch in split_rows(rows, self.queue.buffer_bytes):
            known = failed.error if failed is not None and failed.rows.equals(batch) else None
            refused += isolate(self._call, batch, budget, known)
        letters = make_dead_letters(self.queue, self.bucket, refused)
        self._settle([item], rows.num_rows - sum(each.exports for each in letters), letters)

    def _call(self, rows: pa.RecordBatch) -> Exception | None:
        """Calls the exporter and returns its error. _StoppedError if no call may begin."""
        if self._must_stop():
            raise _StoppedError
        self.report.calls += 1
        try:
            self.exporter.export(ExportBatch(self.queue, self.bucket, rows))
        except Exception as error:
            return error
        return None

    def _must_stop(self) -> bool:
        return self.until() or not may_call(self.store, self.queue, self.generation)

    def _settle(
        self, items: Sequence[PendingItem], exports: int, dead: Sequence[NewDeadLetter]
    ) -> None:
        removed = [item.id for item in items]
        self.store.settle(self.queue.name, self.bucket, self.owner, removed, dead)
        self.report.exports += exports
        for letter in dead:
            self.report.dead += letter.exports
            self._add_problem(f"{letter.error} (now a dead letter)", logging.WARNING)

    def _record_failure(self, error: Exception, rows: pa.RecordBatch) -> None:
        self._failures += 1
        self.report.failed += 1
        self.report.hung += isinstance(error, HungCallError)
        text = f"{describe_place(self.queue, self.bucket, rows)}: {describe_failure(error)}"
        # A receiver may be unavailable for days, so the drain of the queue warns once.
        self._add_problem(text, logging.INFO)
        due_ms = self.instance.clock() + int(1000 * backoff_seconds(self._failures))
        self.store.record_failure(
            self.queue.name, self.bucket, self.owner, text, is_refusal(error), due_ms
        )

    def _add_problem(self, text: str, level: int) -> None:
        logger.log(level, "%s", text)
        self.report.problems.append(text)


class _StoppedError(Exception):
    """The drain ends between two calls."""


def _no_rows(queue: ExportQueue) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=rows_schema(queue))
