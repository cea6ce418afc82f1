"""Appends of several threads in one DynamoDB transaction."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest

from sleeper.aws.dynamo import DynamoItems, Write
from sleeper.aws.errors import RefusedError, ThrottledError
from sleeper.aws.shared_appends import SharedAppends
from sleeper.errors import ConflictError, InvalidRequestError, SleeperError, UnavailableError

THREADS = 8
FIRST: list[Write] = [{"Put": "first"}]


@dataclass
class FakeItems:
    """Records transactions. The first one waits until `proceed` is set; `errors` fails others."""

    proceed: threading.Event = field(default_factory=threading.Event)
    shared: list[tuple[list[Write], str | None]] = field(default_factory=list)
    alone: list[tuple[list[Write], str | None]] = field(default_factory=list)
    errors: dict[int, BaseException] = field(default_factory=dict)

    def transact_once(self, writes: Sequence[Write], token: str | None = None) -> None:
        self.shared.append((list(writes), token))
        number = len(self.shared)
        if number == 1:
            assert self.proceed.wait(30)
        if number in self.errors:
            raise self.errors[number]

    def transact(self, writes: Sequence[Write], token: str | None = None) -> None:
        self.alone.append((list(writes), token))


class Group:
    """A first append that is under way, and others that wait for it."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.items = FakeItems()
        self.appends = SharedAppends(cast(DynamoItems, self.items))
        self._threads = threads
        self._count = 0
        self.first = self.append(FIRST)
        wait_until(lambda: bool(self.items.shared))

    def append(self, writes: list[Write], size_bytes: int = 10) -> Future[None]:
        self._count += 1
        token = f"token-{self._count}"
        return self._threads.submit(self.appends.append, writes, token, size_bytes)

    def append_waiting(self, writes: list[Write], size_bytes: int = 10) -> Future[None]:
        before = len(self.appends._waiting)
        started = self.append(writes, size_bytes)
        wait_until(lambda: len(self.appends._waiting) > before)
        return started

    def finish(self) -> None:
        self.items.proceed.set()
        self.first.result(30)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def group() -> Iterator[Group]:
    with ThreadPoolExecutor(THREADS) as threads:
        started = Group(threads)
        yield started
        started.items.proceed.set()


def writes_of(table: str, count: int = 2) -> list[Write]:
    return [{"Put": f"{table}-{n}"} for n in range(count)]


def test_appends_that_wait_go_into_one_transaction(group: Group) -> None:
    waiting = [group.append_waiting(writes_of(t)) for t in "abc"]
    group.finish()
    for each in waiting:
        each.result(30)
    assert group.items.shared == [
        (FIRST, "token-1"),
        ([*writes_of("a"), *writes_of("b"), *writes_of("c")], None),
    ]
    assert group.items.alone == []


@pytest.mark.parametrize(("writes", "size_bytes"), [(40, 10), (2, 1024**2 + 1)])
def test_a_transaction_is_limited_in_writes_and_bytes(
    group: Group, writes: int, size_bytes: int
) -> None:
    waiting = [group.append_waiting(writes_of(t, writes), size_bytes) for t in "abcde"]
    group.finish()
    for each in waiting:
        each.result(30)
    assert [len(each) for each, _ in group.items.shared] == [1, 2 * writes, 2 * writes, writes]


def test_a_refused_append_fails_alone(group: Group) -> None:
    group.items.errors[2] = RefusedError("condition failed", (3,))
    a, b, c = (group.append_waiting(writes_of(t)) for t in "abc")
    group.finish()
    with pytest.raises(RefusedError) as refused:
        b.result(30)
    assert refused.value.items == (1,)
    a.result(30)
    c.result(30)
    expected = [(writes_of("a"), "token-2"), (writes_of("c"), "token-4")]
    assert sorted(group.items.alone, key=str) == expected


@pytest.mark.parametrize("error", [ConflictError, ThrottledError, InvalidRequestError])
def test_after_a_refused_transaction_each_append_is_sent_alone(
    group: Group, error: type[SleeperError]
) -> None:
    group.items.errors[2] = error("cancelled")
    waiting = [group.append_waiting(writes_of(t)) for t in "ab"]
    group.finish()
    for each in waiting:
        each.result(30)
    expected = [(writes_of("a"), "token-2"), (writes_of("b"), "token-3")]
    assert sorted(group.items.alone, key=str) == expected


def test_an_unavailable_service_fails_all_appends(group: Group) -> None:
    group.items.errors[2] = UnavailableError("no connection")
    waiting = [group.append_waiting(writes_of(t)) for t in "ab"]
    group.finish()
    for each in waiting:
        with pytest.raises(UnavailableError, match="no connection"):
            each.result(30)
    group.append(writes_of("c")).result(30)
    assert group.items.alone == []


def test_an_interrupted_thread_does_not_block_others(group: Group) -> None:
    class InterruptionError(BaseException):
        pass

    group.items.errors[2] = InterruptionError()
    waiting = [group.append_waiting(writes_of(t)) for t in "ab"]
    group.finish()
    errors: list[Any] = [each.exception(30) for each in waiting]
    assert sorted(type(error).__name__ for error in errors) == [
        "InterruptionError",
        "UnavailableError",
    ]


def test_appends_that_one_thread_starts_share_a_request() -> None:
    items = FakeItems()
    items.proceed.set()
    appends = SharedAppends(cast(DynamoItems, items))
    finish_all = [appends.start(writes_of(table), table, 10) for table in "abc"]
    assert items.shared == []
    for finish in finish_all:
        finish()
    assert items.shared == [([*writes_of("a"), *writes_of("b"), *writes_of("c")], None)]


def announce(
    monkeypatch: pytest.MonkeyPatch, seconds_max: float
) -> tuple[FakeItems, SharedAppends]:
    monkeypatch.setattr("sleeper.aws.shared_appends._GATHERING_SECONDS_MAX", seconds_max)
    items = FakeItems()
    items.proceed.set()
    return items, SharedAppends(cast(DynamoItems, items))


def test_a_request_waits_for_the_appends_that_were_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, appends = announce(monkeypatch, 30)
    with ThreadPoolExecutor(THREADS) as threads, appends.announced(3):
        started = []
        for table in "abc":
            assert items.shared == []
            before = len(appends._waiting)
            started.append(threads.submit(appends.append, writes_of(table), table, 10))
            wait_until(partial(lambda n: len(appends._waiting) > n or bool(items.shared), before))
        for each in started:
            each.result(30)
    assert items.shared == [([*writes_of("a"), *writes_of("b"), *writes_of("c")], None)]


def test_a_request_does_not_wait_for_a_thread_that_withdrew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items, appends = announce(monkeypatch, 30)
    with ThreadPoolExecutor(THREADS) as threads, appends.announced(2) as withdraw:
        started = threads.submit(appends.append, writes_of("a"), "a", 10)
        wait_until(lambda: len(appends._waiting) == 1)
        withdraw()
        started.result(10)
    with appends.announced(2):
        pass
    with ThreadPoolExecutor(THREADS) as threads:
        threads.submit(appends.append, writes_of("b"), "b", 10).result(10)
    assert [writes for writes, _ in items.shared] == [writes_of("a"), writes_of("b")]


def test_a_request_waits_only_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    items, appends = announce(monkeypatch, 0.01)
    with appends.announced(2):
        appends.append(writes_of("a"), "a", 10)
    assert items.shared == [(writes_of("a"), "a")]
