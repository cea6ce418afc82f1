"""Contract of the storage of export queues."""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from sleeper.errors import ConflictError, NotFoundError, StateMovedOnError
from sleeper.export_queue.store import (
    BucketStatus,
    ExportCounts,
    ExportStore,
    NewDeadLetter,
    NewItem,
    PendingItem,
    Position,
    RegisteredQueue,
)
from tests.contracts.conftest import Store

TABLE = "0000000a"
ALL = 1 << 30
START = Position(7)


def begin(store: ExportStore, name: str = "q", generation: int = 7) -> None:
    store.register(name, TABLE)
    store.begin(name, generation, Position(generation))


def item(number: int, content: bytes = b"rows", bucket: int = 0, exports: int = 1) -> NewItem:
    return NewItem(bucket, f"{number:020d}-000000", exports, content)


def add(store: ExportStore, *items: NewItem, to: int = 8) -> None:
    store.add("q", 7, items, Position(to))


def contents(items: Sequence[PendingItem]) -> list[bytes]:
    return [each.content for each in items]


def read(store: ExportStore, bucket: int = 0, bytes_max: int = ALL) -> list[bytes]:
    return contents(store.read("q", bucket, bytes_max))


def ids(store: ExportStore, bucket: int = 0) -> list[str]:
    return [each.id for each in store.read("q", bucket, ALL)]


def settle_all(store: ExportStore, *dead: NewDeadLetter, bucket: int = 0) -> None:
    assert store.claim("q", bucket, "w", 60)
    store.settle("q", bucket, "w", ids(store, bucket), dead)
    store.release("q", bucket, "w")


def status(store: ExportStore, bucket: int = 0) -> BucketStatus:
    (found,) = (each for each in store.buckets("q") if each.bucket == bucket)
    return found


def test_a_queue_is_registered_once_and_begins_once(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    assert store.register("q", TABLE) == RegisteredQueue("q", TABLE, 0, Position(0))
    assert store.register("q", TABLE) == store.find("q")
    store.begin("q", 7, START)
    store.begin("q", 9, Position(9))
    assert store.register("q", TABLE) == RegisteredQueue("q", TABLE, 7, START)
    store.register("a", "0000000b")
    assert [each.name for each in export_store.again().list()] == ["a", "q"]
    with pytest.raises(ConflictError, match="'q'"):
        store.register("q", "0000000b")


def test_an_unknown_queue_is_not_found(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store, "counts")
    for call in (
        lambda: store.find("count"),
        lambda: store.begin("count", 1, START),
        lambda: store.pause("count", True),
        lambda: store.add("count", 7, [item(1)], Position(8)),
        lambda: store.counts("count"),
        lambda: store.buckets("count"),
        lambda: store.claim("count", 0, "w", 60),
        lambda: store.read("count", 0, ALL),
        lambda: store.settle("count", 0, "w", []),
        lambda: store.record_failure("count", 0, "w", "", False, 0),
        lambda: store.retry_now("count"),
        lambda: store.dead_letters("count"),
        lambda: store.redrive("count"),
        lambda: store.sweep("count"),
    ):
        with pytest.raises(NotFoundError, match=r"'count'.*did you mean counts"):
            call()
    store.remove("count")
    store.release("count", 0, "w")


def test_a_queue_is_paused_and_resumed(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    store.pause("q", True)
    store.pause("q", True)
    assert export_store.again().find("q").is_paused
    store.pause("q", False)
    assert not export_store.again().find("q").is_paused


def test_items_are_read_in_order_of_their_ids(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, item(3, b"c"), item(1, b"a", exports=5), item(2, b"other", bucket=1), to=8)
    add(store, item(2, b"b"), to=9)
    other = export_store.again()
    assert contents(other.read("q", 0, ALL)) == [b"a", b"b", b"c"]
    assert [each.exports for each in other.read("q", 0, ALL)] == [5, 1, 1]
    assert read(other, 1) == [b"other"]
    assert read(other, 2) == []
    assert other.counts("q") == ExportCounts(pending=8, bytes=8, dead=0)


def test_a_read_is_limited_and_has_at_least_one_item(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, item(1, b"x" * 100), item(2, b"y" * 50), item(3, b"z"))
    assert read(store, bytes_max=1) == [b"x" * 100]
    assert read(store, bytes_max=149) == [b"x" * 100]
    assert read(store, bytes_max=150) == [b"x" * 100, b"y" * 50]
    assert read(store, bytes_max=151) == [b"x" * 100, b"y" * 50, b"z"]


def test_large_items_and_many_pages_are_read_completely(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    small = [item(n, bytes([n]) * 30_000) for n in range(60)]
    large = [item(100 + n, bytes([n]) * (3 * 1024**2)) for n in range(2)]
    add(store, *small, *large)
    assert read(store) == [each.content for each in (*small, *large)]
    assert store.counts("q").bytes == 60 * 30_000 + 2 * 3 * 1024**2
    settle_all(store)
    assert store.counts("q") == ExportCounts(0, 0, 0)
    assert read(store) == []
    assert len(export_store.list_stored()) <= 2  # the queue, and the local state of the bucket


def test_more_items_than_a_transaction_has_room_for(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, *(item(n, b"%d" % n) for n in range(250)))
    assert len(read(store)) == 250
    settle_all(store, *(NewDeadLetter(f"d{n:03d}", 1, b"d", "no") for n in range(120)))
    assert store.counts("q") == ExportCounts(0, 0, 120)


def test_a_repeated_addition_changes_nothing(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    items = [item(1, b"a"), item(2, b"b" * 100_000), item(1, b"c", bucket=3)]
    for to in (8, 9, 9):
        add(store, *items, to=to)
    assert store.counts("q") == ExportCounts(3, 100_002, 0)
    assert len(read(store)) == 2
    stored = [each for each in export_store.list_stored() if "objects" in str(each)]
    assert len(stored) <= 1


def test_an_item_that_changes_after_it_was_read_is_not_lost(
    export_store: Store[ExportStore],
) -> None:
    """A worker that dies leaves items, and the next captures more from the same position."""
    store = export_store.port
    begin(store)
    add(store, item(1, b"1 of 1"), to=8)
    before = ids(store)
    add(store, item(1, b"2 of 2"), to=9)
    assert store.claim("q", 0, "w", 60)
    store.settle("q", 0, "w", before)
    assert read(store) == [b"2 of 2"]


def test_items_are_also_added_behind_the_position(export_store: Store[ExportStore]) -> None:
    """A large step adds several times and moves the position last, maybe after another worker."""
    store = export_store.port
    begin(store)
    add(store, item(1), to=7)
    add(store, item(2), to=3)
    assert len(read(store)) == 2
    assert store.find("q").position == START


def test_the_position_never_moves_back(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    for to, expected in (
        (Position(9, 5), Position(9, 5)),
        (Position(9, 2), Position(9, 5)),
        (Position(8, 7), Position(9, 5)),
        (Position(9, 7), Position(9, 7)),
        (Position(10), Position(10)),
        (Position(9, 99), Position(10)),
    ):
        store.add("q", 7, [], to)
        assert export_store.again().find("q").position == expected


def test_items_of_another_generation_are_refused(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    for generation in (0, 6, 8):
        with pytest.raises(NotFoundError, match="does not exist any more"):
            store.add("q", generation, [item(1)], Position(20))
    assert store.find("q").position == START
    assert store.counts("q").pending == 0


def test_a_removed_queue_leaves_nothing_to_the_next_of_its_name(
    export_store: Store[ExportStore],
) -> None:
    store = export_store.port
    begin(store)
    begin(store, "q2")
    add(store, *(item(n, b"x" * 50_000, bucket=n) for n in range(3)))
    settle_all(store, NewDeadLetter("d", 2, b"x" * 50_000, "no"), bucket=1)
    store.add("q2", 7, [item(1, b"other" * 50_000)], Position(8))
    store.pause("q", True)
    assert store.claim("q", 2, "w", 60)
    store.remove("q", 8)
    assert store.find("q").generation == 7
    store.remove("q", 7)
    store.remove("q")
    assert [each.name for each in store.list()] == ["q2"]
    assert not [each for each in export_store.list_stored() if "q" in each or "#q#" in str(each)]
    begin(store, generation=11)
    assert store.find("q") == RegisteredQueue("q", TABLE, 11, Position(11))
    assert store.buckets("q") == []
    assert store.dead_letters("q") == []
    assert store.counts("q") == ExportCounts(0, 0, 0)
    with pytest.raises(NotFoundError):
        store.add("q", 7, [item(1)], Position(20))
    assert contents(store.read("q2", 0, ALL)) == [b"other" * 50_000]


def test_a_bucket_is_claimed_by_one_worker_until_the_claim_ends(
    export_store: Store[ExportStore],
) -> None:
    store, other, clock = export_store.port, export_store.again(), export_store.clock
    begin(store)
    add(store, item(1))
    assert store.claim("q", 0, "a", 60)
    assert not other.claim("q", 0, "b", 60)
    assert other.claim("q", 1, "b", 60)
    assert status(other).claimed_until_ms == clock() + 60_000
    clock.pass_seconds(59)
    assert store.claim("q", 0, "a", 60)
    clock.pass_seconds(59)
    assert not other.claim("q", 0, "b", 60)
    clock.pass_seconds(1)
    assert status(other).claimed_until_ms == 0
    assert other.claim("q", 0, "b", 60)
    assert not store.claim("q", 0, "a", 60)
    store.release("q", 0, "a")
    assert not store.claim("q", 0, "a", 60)
    other.release("q", 0, "b")
    assert store.claim("q", 0, "a", 60)


def test_claims_that_no_worker_released_are_counted_until_a_success(
    export_store: Store[ExportStore],
) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    add(store, item(1), item(2))
    assert store.claim("q", 0, "a", 60)
    assert store.claim("q", 0, "a", 60)
    store.release("q", 0, "a")
    for owner in ("b", "c", "d"):
        assert store.claim("q", 0, owner, 60)
        clock.pass_seconds(60)
    assert status(store).deaths == 2
    assert store.claim("q", 0, "e", 60)
    store.record_failure("q", 0, "e", "no", False, 5)
    assert status(store).deaths == 3
    assert store.claim("q", 0, "f", 60)
    store.settle("q", 0, "f", ids(store)[:1])
    assert status(store).deaths == 0


def test_a_worker_whose_claim_another_has_changes_nothing(export_store: Store[ExportStore]) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    add(store, item(1))
    assert store.claim("q", 0, "a", 60)
    clock.pass_seconds(60)
    assert store.claim("q", 0, "b", 60)
    with pytest.raises(StateMovedOnError, match="bucket 0"):
        store.settle("q", 0, "a", ids(store), [NewDeadLetter("d", 1, b"d", "no")])
    with pytest.raises(StateMovedOnError, match="bucket 0"):
        store.record_failure("q", 0, "a", "no", True, 5)
    assert read(store) == [b"rows"]
    assert store.counts("q").dead == 0
    assert status(store).failures == 0
    with pytest.raises(StateMovedOnError):
        store.settle("q", 5, "a", [])


def test_many_threads_claim_a_bucket_once(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, *(item(1, bucket=bucket) for bucket in range(5)))
    barrier = threading.Barrier(8)

    def claim(worker: int) -> list[int]:
        mine = export_store.again()
        barrier.wait()
        return [bucket for bucket in range(5) if mine.claim("q", bucket, f"w{worker}", 60)]

    with ThreadPoolExecutor(8) as threads:
        claimed = [bucket for some in threads.map(claim, range(8)) for bucket in some]
    assert sorted(claimed) == list(range(5))


@pytest.mark.slow
def test_counts_are_exact_while_items_are_added_and_settled(
    export_store: Store[ExportStore],
) -> None:
    store = export_store.port
    begin(store)
    exported: Counter[bytes] = Counter()
    added = threading.Event()

    def drain(worker: int) -> None:
        mine, owner = export_store.again(), f"w{worker}"
        while True:
            is_last = added.is_set()
            for bucket in range(3):
                if mine.claim("q", bucket, owner, 60):
                    items = mine.read("q", bucket, 100)
                    exported.update(contents(items))
                    mine.settle("q", bucket, owner, [each.id for each in items])
                    mine.release("q", bucket, owner)
            if is_last and not mine.counts("q").pending:
                return

    with ThreadPoolExecutor(2) as threads:
        drains = [threads.submit(drain, worker) for worker in range(2)]
        for n in range(40):
            add(store, *(item(n, b"%d %d" % (n, b), bucket=b) for b in range(3)), to=8 + n)
        added.set()
        for each in drains:
            each.result(60)
    assert exported == {b"%d %d" % (n, b): 1 for n in range(40) for b in range(3)}
    assert store.counts("q") == ExportCounts(0, 0, 0)
    assert store.buckets("q") == []


def test_settled_items_are_gone_and_reset_the_failures(export_store: Store[ExportStore]) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    add(store, item(1, b"a"), item(2, b"b"))
    assert store.claim("q", 0, "w", 60)
    store.record_failure("q", 0, "w", "refused: x", True, clock() + 4_000)
    assert status(store).was_refused is True
    assert store.claim("q", 0, "v", 60)
    store.record_failure("q", 0, "v", "away", False, clock() + 8_000)
    found = status(export_store.again())
    assert (found.failures, found.refusals, found.error) == (2, 1, "away")
    assert found.was_refused is False
    assert (found.due_ms, found.claimed_until_ms) == (clock() + 8_000, 0)
    assert store.claim("q", 0, "w", 60)
    store.settle("q", 0, "w", ids(store)[:1])
    found = status(store)
    assert (found.failures, found.refusals, found.error, found.due_ms) == (0, 0, "", 0)
    assert (found.items, found.exports, found.bytes) == (1, 1, 1)
    assert read(store) == [b"b"]
    store.settle("q", 0, "w", ids(store))
    store.settle("q", 0, "w", ["00000000000000000001-000000!1!1!0000000000000000"])
    assert store.counts("q") == ExportCounts(0, 0, 0)


def test_the_oldest_time_is_that_of_the_first_item(export_store: Store[ExportStore]) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    first = clock()
    add(store, item(1), item(1, bucket=1), to=8)
    clock.pass_seconds(10)
    add(store, item(2), to=9)
    assert [each.oldest_ms for each in store.buckets("q")] == [first, first]
    assert store.claim("q", 0, "w", 60)
    store.settle("q", 0, "w", ids(store)[:1])
    assert status(store).oldest_ms == first + 10_000
    store.settle("q", 0, "w", ids(store))
    clock.pass_seconds(10)
    add(store, item(3), to=10)
    assert status(store).oldest_ms == first + 20_000


def test_buckets_that_wait_after_a_failure_are_made_due(export_store: Store[ExportStore]) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    add(store, *(item(1, bucket=bucket) for bucket in range(3)))
    for bucket in range(2):
        assert store.claim("q", bucket, "w", 60)
        store.record_failure("q", bucket, "w", "away", False, clock() + 60_000)
    assert store.retry_now("q") == 2
    assert [each.due_ms for each in store.buckets("q")] == [0, 0, 0]
    assert status(store).failures == 1
    assert store.retry_now("q") == 0


def test_a_repeated_dead_letter_is_counted_once(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, item(1, exports=3))
    assert store.claim("q", 0, "w", 60)
    for _ in range(2):
        store.settle("q", 0, "w", [], [NewDeadLetter("1-a", 2, b"x" * 50_000, "null value")])
    assert store.counts("q") == ExportCounts(3, 4, 2)
    (dead,) = export_store.again().dead_letters("q")
    assert (dead.bucket, dead.id, dead.exports, dead.error) == (0, "1-a", 2, "null value")
    assert (dead.content, dead.died_ms) == (b"x" * 50_000, export_store.clock())


def test_dead_letters_are_listed_oldest_first(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    for n in range(5):
        add(store, item(n, bucket=5 - n), to=8 + n)
        settle_all(store, NewDeadLetter(f"{n}", 1, b"d%d" % n, "no"), bucket=5 - n)
    assert [each.id for each in store.dead_letters("q")] == ["0", "1", "2", "3", "4"]
    assert [each.content for each in store.dead_letters("q", 2)] == [b"d0", b"d1"]


def test_redriven_exports_come_before_newer_ones(export_store: Store[ExportStore]) -> None:
    store, clock = export_store.port, export_store.clock
    begin(store)
    add(store, item(1, b"x" * 50_000, exports=4), item(1, b"y", bucket=1))
    (dead,) = store.read("q", 0, ALL)
    settle_all(store, NewDeadLetter(dead.id, 4, dead.content, "no"))
    clock.pass_seconds(5)
    add(store, item(2, b"newer"), to=9)
    assert store.redrive("q") == 4
    assert store.redrive("q") == 0
    assert read(export_store.again()) == [b"x" * 50_000, b"newer"]
    assert store.counts("q") == ExportCounts(6, 50_000 + 5 + 1, 0)
    assert store.dead_letters("q") == []
    settle_all(store)
    assert store.counts("q") == ExportCounts(1, 1, 0)


def test_exports_that_die_again_are_redriven_again(export_store: Store[ExportStore]) -> None:
    store = export_store.port
    begin(store)
    add(store, item(1, b"bad"))
    for _ in range(3):
        (bad,) = store.read("q", 0, ALL)
        settle_all(store, NewDeadLetter(bad.id, 1, bad.content, "no"))
        assert store.counts("q") == ExportCounts(0, 0, 1)
        assert store.redrive("q") == 1
    assert read(store) == [b"bad"]
