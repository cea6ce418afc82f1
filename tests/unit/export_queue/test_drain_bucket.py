"""Drains of one bucket: what an exporter is given, and what happens when it fails."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.errors import NotFoundError, UnavailableError
from sleeper.export_queue.drain import DrainReport, drain_buckets
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.rows import decode_rows
from sleeper.export_queue.store import BucketStatus
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.ports import with_system_port
from tests.unit.export_queue.stored_queue import GENERATION, QUEUE, Export, Recorder, StoredQueue

BUCKET = 2


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(tmp_path: Path, clock: FakeClock) -> Iterator[StoredQueue]:
    create_local_instance(tmp_path / "instance")
    opened = open_local_instance(tmp_path / "instance", clock)
    yield StoredQueue(opened)
    opened.close()


def drain(
    queue: StoredQueue, exporter: Recorder, until: Callable[[], bool] = lambda: False
) -> DrainReport:
    buckets = [each for each in queue.store.buckets("counts") if each.bucket == BUCKET]
    return drain_buckets(queue.instance, queue.queue, GENERATION, buckets, exporter, "me", until)


def status(queue: StoredQueue) -> BucketStatus:
    (found,) = queue.store.buckets("counts")
    return found


def refuse(*keys: str) -> Callable[[Sequence[Export]], None]:
    def check(exports: Sequence[Export]) -> None:
        found = [key for key, _, _ in exports if key in keys]
        if found:
            raise ValueError(f"bad {found[0]}")

    return check


def drain_after_backoff(queue: StoredQueue, exporter: Recorder, clock: FakeClock) -> DrainReport:
    clock.pass_seconds(60)
    return drain(queue, exporter)


def dead_exports(queue: StoredQueue) -> list[tuple[list[str], str]]:
    """Returns the keys and the error of each dead letter."""
    return [
        (decode_rows(QUEUE, each.content).column("word").to_pylist(), each.error)
        for each in queue.store.dead_letters("counts")
    ]


def test_items_are_exported_as_one_batch_in_order_of_key_and_sequence(queue: StoredQueue) -> None:
    queue.add(("b", 1, 7), ("a", 1, 7), bucket=BUCKET)
    queue.add(("a", None, 9), ("b", 5, 8), bucket=BUCKET)
    exporter = Recorder()
    report = drain(queue, exporter)
    assert exporter.batches == [[("a", 1, 7), ("a", None, 9), ("b", 1, 7), ("b", 5, 8)]]
    assert (report.exports, report.calls, queue.pending) == (4, 1, 0)


def test_an_export_that_was_captured_twice_is_exported_once_as_last_stored(
    queue: StoredQueue,
) -> None:
    queue.add(("a", 1, 7), ("a", 2, 8), bucket=BUCKET)
    queue.add(("a", 3, 7), bucket=BUCKET)
    exporter = Recorder()
    drain(queue, exporter)
    assert exporter.batches == [[("a", 3, 7), ("a", 2, 8)]]


def test_a_batch_has_at_most_the_buffer_size(queue: StoredQueue) -> None:
    queue.add(*((f"key {n:06d}", n, 1) for n in range(1000)), bucket=BUCKET)
    queue.change(buffer_bytes=1000)
    exporter = Recorder()
    drain(queue, exporter)
    assert all(20 < len(batch) < 45 for batch in exporter.batches[:-1])
    assert [key for key, _, _ in exporter.exports] == [f"key {n:06d}" for n in range(1000)]


def test_an_export_larger_than_the_buffer_is_a_batch_of_its_own(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), ("b" * 5000, 2, 1), ("c", 3, 1), bucket=BUCKET)
    queue.change(buffer_bytes=1000)
    exporter = Recorder()
    drain(queue, exporter)
    assert [len(batch) for batch in exporter.batches] == [1, 1, 1]


def test_a_bucket_is_read_in_parts_of_the_buffer_size(queue: StoredQueue) -> None:
    for n in range(10):
        queue.add(("a", n, n + 1), bucket=BUCKET)
    size = status(queue).bytes // 10
    queue.change(buffer_bytes=3 * size + size // 2)
    exporter = Recorder()
    assert drain(queue, exporter).exports == 10
    assert [len(batch) for batch in exporter.batches] == [3, 3, 3, 1]


def test_exports_are_kept_until_the_exporter_returned(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    pending = []
    exporter = Recorder(before=lambda _: pending.append(queue.pending))
    drain(queue, exporter)
    assert (pending, queue.pending) == ([1], 0)


def test_a_bucket_of_another_worker_is_left_alone(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    queue.store.claim("counts", BUCKET, "another", 10)
    exporter = Recorder()
    assert drain(queue, exporter).calls == 0
    assert queue.pending == 1


def test_a_drained_bucket_is_free_for_others(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    drain(queue, Recorder())
    assert queue.store.claim("counts", BUCKET, "another", 10)


def test_exports_of_a_worker_whose_claim_was_taken_stay(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)

    def lose_claim(_: Sequence[Export]) -> None:
        clock.pass_seconds(3600)
        assert queue.store.claim("counts", BUCKET, "another", 10)

    drain(queue, Recorder(lose_claim))
    assert queue.pending == 1


@pytest.mark.slow
def test_a_receiver_that_is_unavailable_for_a_day_loses_nothing(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)

    def fail(_: Sequence[Export]) -> None:
        raise ConnectionRefusedError("connection refused")

    exporter = Recorder(fail)
    calls = 0
    end_ms = clock() + 24 * 3_600_000
    while clock() < end_ms:
        calls += drain(queue, exporter).calls
        assert 0 < status(queue).due_ms - clock() <= 60_000
        clock.now_ms = status(queue).due_ms
    assert 24 * 60 <= calls <= 24 * 60 * 2 + 10
    assert (status(queue).failures, status(queue).refusals) == (calls, 0)
    assert status(queue).error == (
        "export queue 'counts', bucket 2, sequence 1: receiver unavailable: "
        "ConnectionRefusedError: connection refused"
    )
    exporter.before = lambda _: None
    assert drain(queue, exporter).exports == 1
    assert queue.store.counts("counts").dead == 0


def test_waits_after_failures_double_up_to_a_minute(queue: StoredQueue, clock: FakeClock) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)

    def fail(_: Sequence[Export]) -> None:
        raise UnavailableError("no answer")

    for longest in (1, 2, 4, 8, 16, 32, 60, 60):
        drain(queue, Recorder(fail))
        assert 500 * longest <= status(queue).due_ms - clock() <= 1000 * longest


def test_refused_exports_become_dead_letters_and_the_others_are_exported(
    queue: StoredQueue, clock: FakeClock
) -> None:
    keys = [f"key {n:03d}" for n in range(100)]
    queue.add(*((key, 1, n + 1) for n, key in enumerate(keys)), bucket=BUCKET)
    exporter = Recorder(refuse("key 017", "key 083"))
    for refusals in (1, 2):
        drain_after_backoff(queue, exporter, clock)
        assert status(queue).refusals == refusals
        assert exporter.exports == []
    report = drain_after_backoff(queue, exporter, clock)
    assert (report.exports, report.dead, queue.pending) == (98, 2, 0)
    assert sorted(dict.fromkeys(key for key, _, _ in exporter.exports)) == [
        key for key in keys if key not in ("key 017", "key 083")
    ]
    place = "export queue 'counts', bucket 2, sequence"
    assert dead_exports(queue) == [
        (["key 017"], f"{place} 18: ValueError: bad key 017"),
        (["key 083"], f"{place} 84: ValueError: bad key 083"),
    ]


def test_only_the_exports_that_a_receiver_names_become_dead_letters(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 3), ("b", 1, 4), ("c", 1, 5), ("d", 1, 6), bucket=BUCKET)

    def fail(exports: Sequence[Export]) -> None:
        exporter.batches.append(list(exports))
        raise RefusedExportsError({0: "no such word", 2: "no such word", 3: "too long"})

    exporter = Recorder(fail)
    for _ in range(3):
        report = drain_after_backoff(queue, exporter, clock)
    assert (report.exports, report.dead, queue.pending) == (1, 3, 0)
    assert len(exporter.batches) == 3
    place = "export queue 'counts', bucket 2, sequence"
    assert dead_exports(queue) == [
        (["a", "c"], f"{place}s 3 to 5: no such word"),
        (["d"], f"{place} 6: too long"),
    ]


@pytest.mark.parametrize("reasons", [{}, {5: "no such export"}])
def test_exports_are_dead_if_a_receiver_names_none_of_them(
    queue: StoredQueue, clock: FakeClock, reasons: dict[int, str]
) -> None:
    queue.add(("a", 1, 3), ("b", 1, 4), bucket=BUCKET)

    def fail(_: Sequence[Export]) -> None:
        raise RefusedExportsError(reasons)

    for _ in range(3):
        drain_after_backoff(queue, Recorder(fail), clock)
    ((keys, error),) = dead_exports(queue)
    assert keys == ["a", "b"]
    assert "refused at invalid positions" in error


def test_a_receiver_that_goes_away_during_isolation_gets_everything_again(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 1, 1), bucket=BUCKET)
    exporter = Recorder(refuse("a"))
    drain_after_backoff(queue, exporter, clock)
    drain_after_backoff(queue, exporter, clock)

    def fail(exports: Sequence[Export]) -> None:
        if exports[0][0] == "c":
            raise TimeoutError
        refuse("a")(exports)

    exporter.before = fail
    drain_after_backoff(queue, exporter, clock)
    assert (queue.pending, dead_exports(queue)) == (4, [])
    exporter.before = refuse("a")
    drain_after_backoff(queue, exporter, clock)
    assert queue.pending == 0
    assert [keys for keys, _ in dead_exports(queue)] == [["a"]]


def test_a_success_resets_the_number_of_tries(queue: StoredQueue, clock: FakeClock) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    exporter = Recorder(refuse("a"))
    drain_after_backoff(queue, exporter, clock)
    drain_after_backoff(queue, exporter, clock)
    exporter.before = lambda _: None
    drain_after_backoff(queue, exporter, clock)
    queue.add(("a", 2, 2), bucket=BUCKET)
    exporter.before = refuse("a")
    drain_after_backoff(queue, exporter, clock)
    assert (status(queue).refusals, dead_exports(queue)) == (1, [])


def test_redriven_exports_are_exported_before_newer_ones(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.change(tries=1)
    queue.add(("a", 1, 1), bucket=BUCKET)
    drain(queue, Recorder(refuse("a")))
    queue.add(("a", 2, 2), bucket=BUCKET)
    assert queue.store.redrive("counts") == 1
    queue.change(buffer_bytes=1)
    exporter = Recorder()
    drain_after_backoff(queue, exporter, clock)
    assert exporter.batches == [[("a", 1, 1)], [("a", 2, 2)]]


def test_a_damaged_item_is_a_dead_letter_and_does_not_stop_its_bucket(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    queue.add_content(BUCKET, 5, b"damaged")
    exporter = Recorder()
    for _ in range(3):
        drain_after_backoff(queue, exporter, clock)
    assert (queue.pending, exporter.exports) == (0, [("a", 1, 1)])
    (letter,) = queue.store.dead_letters("counts")
    assert (letter.exports, letter.content) == (5, b"damaged")
    assert letter.error.startswith("export queue 'counts', bucket 2: export queue 'counts': damag")


def test_a_paused_queue_stops_between_two_calls(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), ("b" * 5000, 2, 1), bucket=BUCKET)
    queue.change(buffer_bytes=1000)
    exporter = Recorder(lambda _: queue.store.pause("counts", True))
    drain(queue, exporter)
    assert ([len(batch) for batch in exporter.batches], queue.pending) == ([1], 2)
    queue.store.pause("counts", False)
    assert queue.store.claim("counts", BUCKET, "another", 10)


def test_a_drain_ends_between_two_calls_when_its_time_is_over(queue: StoredQueue) -> None:
    queue.add(*((str(n), n, 1) for n in range(100)), bucket=BUCKET)
    queue.change(buffer_bytes=100)
    exporter = Recorder()
    drain(queue, exporter, until=lambda: len(exporter.batches) == 3)
    assert (len(exporter.batches), queue.pending) == (3, 100)


def test_a_queue_that_is_deleted_during_a_call_ends_quietly(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    report = drain(queue, Recorder(lambda _: queue.store.remove("counts")))
    assert (report.exports, report.problems) == (0, [])


def test_an_exporter_that_finds_no_object_is_no_deleted_queue(
    queue: StoredQueue, clock: FakeClock
) -> None:
    def fail(_: Sequence[Export]) -> None:
        raise NotFoundError("unknown table")

    queue.add(("a", 1, 1), bucket=BUCKET)
    drain(queue, Recorder(fail))
    assert status(queue).error.endswith("sequence 1: unknown table")


def test_a_store_that_fails_to_settle_repeats_the_export(queue: StoredQueue) -> None:
    queue.add(("a", 1, 1), bucket=BUCKET)
    store = queue.store

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def settle(self, *_: object) -> None:
            raise UnavailableError("the disk is full")

    exporter = Recorder()
    broken = replace(queue, instance=with_system_port(queue.instance, "export_queue", Failing()))
    with pytest.raises(UnavailableError, match="disk"):
        drain(broken, exporter)
    drain(queue, exporter)
    assert exporter.batches == [[("a", 1, 1)], [("a", 1, 1)]]
    assert queue.pending == 0


def die_holding_the_claim(queue: StoredQueue, clock: FakeClock, times: int) -> None:
    """Claims the bucket as workers do that die without releasing it."""
    for n in range(times):
        assert queue.store.claim("counts", BUCKET, f"dead {n}", 10)
        clock.pass_seconds(10)


def test_after_a_worker_died_the_first_item_is_exported_alone(
    queue: StoredQueue, clock: FakeClock
) -> None:
    for n in range(1, 4):
        queue.add(("a", n, n), bucket=BUCKET)
    die_holding_the_claim(queue, clock, 2)
    exporter = Recorder()
    drain(queue, exporter)
    assert exporter.batches == [[("a", 1, 1)], [("a", 2, 2), ("a", 3, 3)]]


def test_an_item_with_which_workers_die_becomes_a_dead_letter(
    queue: StoredQueue, clock: FakeClock
) -> None:
    queue.add(("a", 1, 7), ("b", 1, 7), bucket=BUCKET)
    queue.add(("b", 2, 8), bucket=BUCKET)
    die_holding_the_claim(queue, clock, 4)
    exporter = Recorder()
    report = drain(queue, exporter)
    assert exporter.batches == [[("b", 2, 8)]]
    assert report.dead == 2
    place = f"export queue 'counts', bucket {BUCKET}, sequence 7"
    error = f"{place}: 3 workers died while they exported it"
    assert dead_exports(queue) == [(["a", "b"], error)]
