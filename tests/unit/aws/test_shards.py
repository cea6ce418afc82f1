"""Tests of streams of shards: their order, expired iterators and records that are gone."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from sleeper.adjunct.aws.shards import (
    ExpiredIteratorError,
    Shard,
    ShardedLog,
    ShardPage,
    TrimmedError,
    next_offset,
    previous_offset,
)
from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import FINISHED
from sleeper.errors import DataError, StateMovedOnError

HOUR_MS = 3_600_000


class FakeService:
    """A stream whose iterators are `shard:place`."""

    name = "kinesis:words"
    created = "1"
    created_ms = 0
    retention_ms = 24 * HOUR_MS

    def __init__(self) -> None:
        self.shards: dict[str, list[str]] = {"a": ["7", "8", "9"]}
        self.parents: dict[str, tuple[str, ...]] = {}
        self.closed: set[str] = set()
        self.expired: set[str] = set()
        self.reads: list[str] = []
        self.found: list[str] = []

    def list_shards(self) -> Sequence[Shard]:
        return [Shard(each, self.parents.get(each, ())) for each in self.shards]

    def find_iterator(self, shard: str, offset: str | None) -> str:
        self.found.append(f"{shard}:{offset}")
        if offset is None:
            return f"{shard}:0"
        if offset not in self.shards[shard]:
            raise TrimmedError
        return f"{shard}:{self.shards[shard].index(offset) + 1}"

    def read(self, shard: str, iterator: str) -> ShardPage:
        if iterator in self.expired:
            self.expired.remove(iterator)
            raise ExpiredIteratorError
        place = int(iterator.partition(":")[2])
        found = self.shards[shard][place : place + 2]
        self.reads += found
        end = place + len(found)
        is_end = end == len(self.shards[shard])
        following = None if is_end and shard in self.closed else f"{shard}:{end}"
        return ShardPage([partial(self.decode, shard, each) for each in found], following, is_end)

    def decode(self, shard: str, number: str) -> Envelope:
        if number == "13":
            raise DataError(f"{self.name}, partition {shard}, offset 13")
        return Envelope(self.name, shard, number, next_offset(number), number, number)

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        yield []
        yield []


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sleeper.adjunct.aws.shards._REQUEST_SECONDS", 0.0)
    monkeypatch.setattr("sleeper.adjunct.aws.shards._LIST_SECONDS", 0.0)


def open_log(service: FakeService, now_ms: int = 0, has_snapshot: bool = False) -> ShardedLog:
    return ShardedLog(service, has_snapshot, lambda: now_ms)


def read_all(log: ShardedLog, positions: dict[str, str]) -> list[str]:
    found: list[str] = []
    ended: set[str] = set()
    while rest := [each for each in log.partitions(positions) if each not in ended]:
        batch = log.poll(positions, rest)
        found += [each.offset for each in batch.envelopes]
        positions |= batch.positions
        ended |= batch.ended
    return found


def test_a_shard_is_read_by_its_iterators() -> None:
    service = FakeService()
    log, positions = open_log(service), dict[str, str]()
    assert read_all(log, positions) == ["7", "8", "9"]
    assert positions == {"a": "10"}
    service.shards["a"].append("10")
    assert read_all(log, positions) == ["10"]
    assert service.found == ["a:None"]


def test_shards_are_read_after_those_that_they_continue() -> None:
    service = FakeService()
    service.shards |= {"b": ["10"], "c": ["11"], "d": ["12"]}
    service.parents = {"b": ("a",), "c": ("a",), "d": ("b", "c")}
    log, positions = open_log(service), dict[str, str]()
    assert log.partitions({}) == ["a"]
    assert read_all(log, positions) == ["7", "8", "9"]
    service.closed = {"a", "b", "c"}
    assert read_all(log, positions) == ["10", "11", "12"]
    assert positions == {"a": FINISHED, "b": FINISHED, "c": FINISHED, "d": "13"}
    assert service.reads == ["7", "8", "9", "10", "11", "12"]


def test_a_shard_whose_parents_are_gone_is_read() -> None:
    service = FakeService()
    service.parents = {"a": ("before",)}
    assert read_all(open_log(service), {}) == ["7", "8", "9"]


def test_an_expired_iterator_is_replaced_by_one_of_the_position() -> None:
    service = FakeService()
    log, positions = open_log(service), dict[str, str]()
    read_all(log, positions)
    service.expired = {"a:3"}
    service.shards["a"].append("10")
    assert read_all(log, positions) == ["10"]
    assert service.found == ["a:None", "a:9"]


def test_another_position_than_the_last_is_found_again() -> None:
    service = FakeService()
    log = open_log(service)
    read_all(log, {})
    assert read_all(log, {"a": "9"}) == ["9"]


def test_a_record_that_expired_after_everything_was_read_is_no_loss() -> None:
    service = FakeService()
    positions = open_log(service).complete({"a": "7"}, read_ms=5 * HOUR_MS)
    assert read_all(open_log(service, now_ms=28 * HOUR_MS), positions) == ["7", "8", "9"]


def test_records_that_may_be_gone_are_an_error() -> None:
    service = FakeService()
    positions = open_log(service).complete({"a": "7"}, read_ms=5 * HOUR_MS)
    log = open_log(service, now_ms=30 * HOUR_MS)
    log.newest(positions)
    with pytest.raises(StateMovedOnError, match="partition a: messages after offset 7 may be gone"):
        read_all(log, positions)


@pytest.mark.parametrize("now_hours", [28, 30])
def test_a_shard_that_is_gone_was_read_or_is_an_error(now_hours: int) -> None:
    service = FakeService()
    service.shards["b"] = []
    positions = open_log(service).complete({"a": "10", "b": "7"}, read_ms=5 * HOUR_MS)
    del service.shards["b"]
    log = open_log(service, now_ms=now_hours * HOUR_MS)
    if now_hours == 28:
        log.newest(positions)
        assert "b" not in log.complete(positions, 0)
        return
    with pytest.raises(StateMovedOnError, match="partition b"):
        log.newest(positions)


def test_a_stream_that_was_created_again_is_an_error() -> None:
    service = FakeService()
    positions = open_log(service).complete({}, 0)
    service.created = "2"
    with pytest.raises(StateMovedOnError, match="deleted and created again"):
        open_log(service).newest(positions)


def test_reading_stops_before_a_record_that_cannot_be_decoded() -> None:
    service = FakeService()
    service.shards["a"] = ["7", "13", "14"]
    log = open_log(service)
    batch = log.poll({}, ["a"])
    assert [each.offset for each in batch.envelopes] == ["7"]
    assert batch.positions == {"a": "8"}
    for _ in range(2):
        with pytest.raises(DataError, match="offset 13"):
            log.poll({"a": "8"}, ["a"])
    service.shards["a"][1] = "12"
    assert read_all(log, {"a": "8"}) == ["12", "14"]


def test_a_stream_is_whole_until_its_first_records_expire() -> None:
    service = FakeService()
    assert open_log(service, 23 * HOUR_MS).is_whole()
    assert not open_log(service, 25 * HOUR_MS).is_whole()
    assert open_log(service, 25 * HOUR_MS, has_snapshot=True).is_whole()


def test_a_snapshot_that_takes_longer_than_changes_are_kept_is_an_error() -> None:
    times = iter([0, 25 * HOUR_MS, 0])
    log = ShardedLog(FakeService(), True, lambda: next(times))
    with pytest.raises(StateMovedOnError, match="took longer"):
        list(log.snapshot())


@pytest.mark.parametrize(
    "offset", ["0", "9", "49590338271490256608559692538361571095921575989136588898", "0019"]
)
def test_offsets_are_numbers(offset: str) -> None:
    after = next_offset(offset)
    assert int(after) == int(offset) + 1
    assert json.loads(after.lstrip("0") or "0") == int(offset) + 1
    assert int(previous_offset(after)) == int(offset)
    if not offset.startswith("0"):
        assert previous_offset(after) == offset
