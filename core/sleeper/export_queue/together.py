"""Drains several buckets with one call, for exporters that commit with each call.

A call that fails is no failure of a bucket. The buckets are then drained one by one, which
finds the bucket that is at fault.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from sleeper.errors import DataError, NotFoundError, StateMovedOnError
from sleeper.export_queue.batches import merge_rows
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.drain import CLAIM_SECONDS, RENEWAL_SECONDS, DrainReport, may_call
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.export_queue.failures import (
    HungCallError,
    backoff_seconds,
    describe_failure,
    describe_place,
)
from sleeper.export_queue.rows import decode_rows
from sleeper.instance import Instance
from sleeper.jobs.export_store import BucketStatus, PendingItem
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)

TOGETHER_BYTES_MAX = 8 * 1024**2
# Rows may be much larger than their items, which are compressed.
_ROWS_BYTES_MAX = 64 * 1024**2


@dataclass(slots=True)
class DrainTogether:
    """One call for several buckets, whose claims `owner` takes."""

    instance: Instance
    queue: ExportQueue
    generation: int
    exporter: Exporter
    owner: str
    must_stop: Callable[[], bool]
    _items: dict[int, Sequence[PendingItem]] = field(default_factory=dict)

    def run(self, buckets: Sequence[BucketStatus]) -> DrainReport | None:
        """Exports the first items of the buckets. Buckets of other workers are left out.

        Returns None if the call failed, an item is damaged, or the rows are too large for one call.
        A call that does not return is a failure of each bucket.
        """
        store, name = self.instance.jobs.export_store(), self.queue.name
        with ExitStack() as stack:
            try:
                for bucket in (each.bucket for each in buckets):
                    if store.claim(name, bucket, self.owner, CLAIM_SECONDS):
                        stack.callback(store.release, name, bucket, self.owner)
                        self._items[bucket] = store.read(name, bucket, self.queue.buffer_bytes)
                what = f"renewal of claims on {len(self._items)} buckets of queue {name}"
                stack.enter_context(Renewal(what, self._renew_claims, RENEWAL_SECONDS))
                if self.must_stop() or not may_call(store, self.queue, self.generation):
                    return DrainReport()
                return self._export()
            except NotFoundError:
                logger.info("export queue %s was deleted", name)
                return DrainReport()
            except (DataError, StateMovedOnError):
                return None

    def _renew_claims(self) -> None:
        store = self.instance.jobs.export_store()
        for bucket in self._items:
            store.claim(self.queue.name, bucket, self.owner, CLAIM_SECONDS)

    def _export(self) -> DrainReport | None:
        store, report = self.instance.jobs.export_store(), DrainReport()
        decoded, size = [], 0
        for item in (item for items in self._items.values() for item in items):
            decoded.append(decode_rows(self.queue, item.content))
            size += decoded[-1].nbytes
            if size > _ROWS_BYTES_MAX:
                return None
        if not decoded:
            return report
        rows = merge_rows(self.queue, decoded)
        report.calls += 1
        try:
            self.exporter.export(ExportBatch(self.queue, min(self._items), rows))
        except HungCallError as error:
            return self._record_hung(error)
        except Exception as error:
            # The code of an exporter raises anything. Calls for single buckets report it.
            count = len(self._items)
            logger.info("export queue %s: %d buckets together: %s", self.queue.name, count, error)
            return None
        for bucket, items in self._items.items():
            store.settle(self.queue.name, bucket, self.owner, [item.id for item in items])
            report.exports += sum(item.exports for item in items)
        return report

    def _record_hung(self, error: HungCallError) -> DrainReport:
        """Counts a failure of each bucket, so that the next process drains them one by one."""
        store, queue = self.instance.jobs.export_store(), self.queue
        due_ms = self.instance.clock() + int(backoff_seconds(1) * 1000)
        problems = []
        for bucket in self._items:
            problems.append(f"{describe_place(queue, bucket)}: {describe_failure(error)}")
            store.record_failure(queue.name, bucket, self.owner, problems[-1], False, due_ms)
        return DrainReport(calls=1, failed=1, hung=1, problems=problems[-1:])
