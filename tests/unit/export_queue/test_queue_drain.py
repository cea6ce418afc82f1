"""Drains of all buckets of a queue by several threads."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue import timed_exporter
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.queue_drain import QueueDrain
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.unit.export_queue.stored_queue import GENERATION, Export, Recorder, StoredQueue

KEYS = [f"key {n}" for n in range(40)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(tmp_path: Path, clock: FakeClock) -> Iterator[StoredQueue]:
    create_local_instance(tmp_path / "instance")
    opened = open_local_instance(tmp_path / "instance", clock)
    yield StoredQueue(opened)
    opened.close()


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The exporter of all threads."""
    recorder = Recorder()
    monkeypatch.setattr(timed_exporter, "open_exporter", lambda *_: recorder)
    return recorder


def test_all_buckets_are_drained(queue: StoredQueue, exporter: Recorder) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        report = drain.run(lambda: False)
    assert (report.exports, report.calls, queue.pending) == (40, 4, 0)
    assert sorted(key for key, _, _ in exporter.exports) == sorted(KEYS)
    assert exporter.closed > 0


def test_one_failing_bucket_does_not_stop_the_others(
    queue: StoredQueue, exporter: Recorder
) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))
    poison = queue.bucket_of("key 0")

    def fail(exports: Sequence[Export]) -> None:
        if any(key == "key 0" for key, _, _ in exports):
            raise ValueError("poison")

    exporter.before = fail
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        drain.run(lambda: False)
    assert [each.bucket for each in queue.store.buckets("counts")] == [poison]


def test_a_drain_that_waits_ends_when_refused_exports_are_dead(
    queue: StoredQueue, exporter: Recorder, clock: FakeClock
) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))

    def fail(exports: Sequence[Export]) -> None:
        clock.pass_seconds(60)
        if any(key == "key 0" for key, _, _ in exports):
            raise ValueError("poison")

    def let_time_pass() -> bool:
        clock.pass_seconds(1)
        return False

    exporter.before = fail
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION, parallel=1)) as drain:
        report = drain.run(let_time_pass, waits=True)
    assert (report.exports, report.dead, queue.pending) == (39, 1, 0)


def test_a_receiver_that_is_unavailable_is_one_warning_until_a_call_succeeds(
    queue: StoredQueue, exporter: Recorder, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Sequence[Export]) -> None:
        raise ConnectionError("refused")

    queue.add(*((key, 1, 1) for key in KEYS))
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        for before, pending in ((fail, 40), (fail, 40), (lambda _: None, 0)):
            exporter.before = before
            clock.pass_seconds(60)
            drain.run(lambda: False)
            assert queue.pending == pending
        queue.add(*((key, 2, 2) for key in KEYS))
        exporter.before = fail
        drain.run(lambda: False)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 2


def test_a_drain_that_waits_does_not_wait_for_a_receiver_that_is_unavailable(
    queue: StoredQueue, exporter: Recorder
) -> None:
    def fail(_: Sequence[Export]) -> None:
        raise ConnectionError("refused")

    queue.add(*((key, 1, 1) for key in KEYS))
    exporter.before = fail
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION, parallel=1)) as drain:
        report = drain.run(lambda: False, waits=True)
        assert exporter.closed == 4, "a connection that failed is opened again"
    assert (report.calls, len(report.problems), queue.pending) == (4, 4, 40)


def test_only_given_buckets_are_drained(queue: StoredQueue, exporter: Recorder) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION, buckets=[1, 3])) as drain:
        drain.run(lambda: False)
    assert {queue.bucket_of(key) for key, _, _ in exporter.exports} == {1, 3}
    assert [each.bucket for each in queue.store.buckets("counts")] == [0, 2]


def test_two_workers_export_every_export_once(queue: StoredQueue, exporter: Recorder) -> None:
    queue.change(buckets=16)
    for n in range(20):
        queue.add(*((key, n, n + 1) for key in KEYS))

    def run() -> None:
        with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
            drain.run(lambda: queue.pending == 0, waits=True)

    workers = [threading.Thread(target=run) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert queue.pending == 0
    assert sorted(exporter.exports) == sorted((key, n, n + 1) for key in KEYS for n in range(20))


@pytest.mark.slow
def test_a_call_that_does_not_return_frees_its_bucket_and_ends_the_run(
    queue: StoredQueue, exporter: Recorder
) -> None:
    queue.change(timeout_seconds=1)
    queue.add(*((key, 1, 1) for key in KEYS))
    released = threading.Event()

    def hang(exports: Sequence[Export]) -> None:
        if queue.bucket_of(exports[0][0]) == 0:
            released.wait()

    exporter.before = hang
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION, parallel=1)) as drain:
        report = drain.run(lambda: False, waits=True)
        statuses = queue.store.buckets("counts")
        assert (report.hung, report.exports, len(statuses)) == (1, 0, 4)
        assert (statuses[0].failures, statuses[0].refusals) == (1, 0)
        assert statuses[0].error.endswith("sequence 1: the exporter did not return within 1 s")
        assert queue.store.claim("counts", 0, "another", 10)
        # Its thread is stuck, so another one goes on.
        assert drain.run(lambda: False).calls == 3
    assert {queue.bucket_of(key) for key, _, _ in exporter.exports} == {1, 2, 3}
    released.set()


def test_an_exporter_that_cannot_be_opened_causes_no_dead_letters(
    queue: StoredQueue, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    def refuse(_: Instance, __: ExportQueue) -> Recorder:
        raise InvalidRequestError("no exporter 'Mine' is registered")

    monkeypatch.setattr(timed_exporter, "open_exporter", refuse)
    queue.change(tries=1)
    queue.add(("a", 1, 1))
    for _ in range(3):
        with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
            report = drain.run(lambda: False)
        clock.pass_seconds(60)
    assert "cannot open the exporter: no exporter 'Mine'" in report.problems[0]
    assert (queue.pending, queue.store.counts("counts").dead) == (1, 0)


def test_an_exporter_that_exits_is_refused(queue: StoredQueue, exporter: Recorder) -> None:
    def leave(_: Sequence[Export]) -> None:
        raise SystemExit(3)

    exporter.before = leave
    queue.add(("a", 1, 1))
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        report = drain.run(lambda: False)
    assert report.problems[0].endswith("sequence 1: SystemExit: 3")


def test_a_deleted_queue_ends_the_drain(queue: StoredQueue, exporter: Recorder) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))
    exporter.before = lambda _: queue.store.remove("counts")
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        assert drain.run(lambda: False, waits=True).exports == 0


def test_a_store_that_fails_ends_the_drain_with_its_error(
    queue: StoredQueue, exporter: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("the disk is full")

    queue.add(("a", 1, 1))
    monkeypatch.setattr(queue.store, "settle", fail)
    with (
        closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain,
        pytest.raises(UnavailableError),
    ):
        drain.run(lambda: False)
    assert exporter.exports == [("a", 1, 1)]


def test_buckets_with_which_a_worker_died_are_drained_last_and_alone(
    queue: StoredQueue, exporter: Recorder, clock: FakeClock
) -> None:
    queue.add(*((key, 1, 1) for key in KEYS))
    for bucket in (0, 1):
        assert queue.store.claim("counts", bucket, "dead", 10)
    clock.pass_seconds(10)
    for bucket in (0, 1):
        assert queue.store.claim("counts", bucket, "next", 10)
    clock.pass_seconds(10)
    claimed: list[list[int]] = []

    def note(exports: Sequence[Export]) -> None:
        found = queue.store.buckets("counts")
        claimed.append([each.bucket for each in found if each.claimed_until_ms])

    exporter.before = note
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        drain.run(lambda: False)
    assert claimed[2:] == [[0], [1]]
    assert queue.pending == 0


def test_two_drains_of_a_bucket_end_in_any_order(queue: StoredQueue) -> None:
    with closing(QueueDrain(queue.instance, queue.queue, GENERATION)) as drain:
        first, second = drain._exporter(), drain._exporter()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert drain.seconds_of_oldest() > 0
        second.__exit__(None, None, None)
        assert drain.seconds_of_oldest() == 0
