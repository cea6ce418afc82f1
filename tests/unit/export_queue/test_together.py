"""Buckets that are drained with one call, for exporters that commit with each call."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sleeper.errors import NotFoundError
from sleeper.export_queue import drain as drain_module
from sleeper.export_queue import timed_exporter
from sleeper.export_queue.definition import ExporterSettings
from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.queue_drain import QueueDrain
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.unit.export_queue.stored_queue import GENERATION, Export, Recorder, StoredQueue

KEYS = [f"key {n}" for n in range(40)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[StoredQueue]:
    create_local_instance(tmp_path / "instance")
    opened = open_local_instance(tmp_path / "instance", FakeClock())
    stored = StoredQueue(opened)
    stored.change(exporter=ExporterSettings("table:other"))
    stored.add(*((key, 1, 1) for key in KEYS))
    stored.add(("key 0", 2, 2))
    yield stored
    opened.close()


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(timed_exporter, "open_exporter", lambda *_: recorder)
    return recorder


def drain(queue: StoredQueue) -> DrainReport:
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drains:
        return drains.run(lambda: False)


def test_one_call_has_all_buckets_in_order_of_keys(queue: StoredQueue, exporter: Recorder) -> None:
    report = drain(queue)
    assert (report.exports, report.calls, queue.pending) == (41, 1, 0)
    assert exporter.batches == [sorted([*((key, 1, 1) for key in KEYS), ("key 0", 2, 2)])]


def test_rows_that_are_too_large_in_memory_are_exported_by_single_buckets(
    queue: StoredQueue, exporter: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "_ROWS_BYTES_MAX", 500)
    report = drain(queue)
    assert (report.exports, report.calls, queue.pending) == (41, 4, 0)


def test_a_failed_call_is_repeated_for_single_buckets(
    queue: StoredQueue, exporter: Recorder
) -> None:
    def fail(exports: Sequence[Export]) -> None:
        if any(key == "key 0" for key, _, _ in exports):
            raise ValueError("poison")

    exporter.before = fail
    report = drain(queue)
    (status,) = queue.store.buckets("counts")
    assert (status.bucket, status.refusals) == (queue.bucket_of("key 0"), 1)
    assert report.exports + queue.pending == 41
    assert len(report.problems) == 1


def test_an_exporter_that_finds_no_table_is_no_deleted_queue(
    queue: StoredQueue, exporter: Recorder
) -> None:
    def fail(_: Sequence[Export]) -> None:
        raise NotFoundError("no table other")

    exporter.before = fail
    report = drain(queue)
    assert len(report.problems) == 4
    assert all(status.refusals == 1 for status in queue.store.buckets("counts"))


def test_a_damaged_item_does_not_stop_other_buckets(queue: StoredQueue, exporter: Recorder) -> None:
    queue.add_content(queue.bucket_of("key 0"), 1, b"damaged")
    drain(queue)
    assert [each.bucket for each in queue.store.buckets("counts")] == [queue.bucket_of("key 0")]


def test_buckets_of_another_worker_are_left_out(queue: StoredQueue, exporter: Recorder) -> None:
    others = queue.bucket_of("key 0")
    exporter.before = lambda _: queue.store.claim("counts", others, "another", 60)
    assert queue.store.claim("counts", others, "another", 60)
    drain(queue)
    assert [each.bucket for each in queue.store.buckets("counts")] == [others]
    assert all(queue.bucket_of(key) != others for key, _, _ in exporter.exports)


def test_the_claims_last_until_the_exports_are_deleted(
    queue: StoredQueue, exporter: Recorder
) -> None:
    claims: list[bool] = []
    exporter.before = lambda _: claims.extend(
        queue.store.claim("counts", bucket, "another", 1) for bucket in range(4)
    )
    drain(queue)
    assert claims == [False] * 4
    assert all(queue.store.claim("counts", bucket, "another", 1) for bucket in range(4))


def test_a_paused_queue_is_not_drained(queue: StoredQueue, exporter: Recorder) -> None:
    queue.store.pause("counts", True)
    drain(queue)
    assert (exporter.batches, queue.pending) == ([], 41)


@pytest.mark.slow
def test_a_call_that_does_not_return_is_a_failure_of_each_bucket(
    queue: StoredQueue, exporter: Recorder
) -> None:
    queue.change(timeout_seconds=1)
    released = threading.Event()
    exporter.before = lambda _: released.wait()
    report = drain(queue)
    released.set()
    assert report.hung == 1
    assert [(s.failures, s.refusals) for s in queue.store.buckets("counts")] == [(1, 0)] * 4


def test_buckets_with_more_items_than_a_call_reads_are_drained_until_they_are_empty(
    queue: StoredQueue, exporter: Recorder
) -> None:
    queue.change(buffer_bytes=1)
    queue.add(("key 0", 3, 3))
    report = drain(queue)
    # Every bucket has an item, that of key 0 three.
    assert [len(batch) for batch in exporter.batches[1:]] == [1, 1]
    assert (report.exports, report.calls, queue.pending) == (42, 3, 0)


@pytest.mark.slow
def test_after_a_call_that_does_not_return_the_other_buckets_wait_for_the_next_process(
    queue: StoredQueue, exporter: Recorder
) -> None:
    queue.change(timeout_seconds=1)
    released, calls = threading.Event(), 0

    def fail_and_hang(_: Sequence[Export]) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("one of them")
        released.wait()

    exporter.before = fail_and_hang
    report = drain(queue)
    released.set()
    assert (report.hung, report.calls) == (1, 2)
    assert sorted(s.failures for s in queue.store.buckets("counts")) == [0, 0, 0, 1]


def test_a_lost_claim_on_one_bucket_does_not_end_those_on_others(
    queue: StoredQueue, exporter: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "RENEWAL_SECONDS", 0.01)
    clock = queue.instance.clock
    assert isinstance(clock, FakeClock)
    lost = queue.store.buckets("counts")[0].bucket
    renewed = threading.Event()

    def lose_claim(_: Sequence[Export]) -> None:
        exporter.before = lambda _: None
        clock.pass_seconds(3600)
        while not queue.store.claim("counts", lost, "another", 7200):
            clock.pass_seconds(3600)
        clock.pass_seconds(60)
        deadline = time.monotonic() + 10
        while not renewed.is_set() and time.monotonic() < deadline:
            if all(each.claimed_until_ms for each in queue.store.buckets("counts")):
                renewed.set()

    exporter.before = lose_claim
    drain(queue)
    assert renewed.is_set()
