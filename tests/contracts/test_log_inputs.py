"""The suite of log inputs: the log in memory, Kafka, Kinesis and tables of DynamoDB."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import LogInput, is_reached
from sleeper.clock import system_clock
from sleeper.errors import DataError, StateMovedOnError
from tests.contracts.aws_log_sources import (
    KinesisSource,
    TableSource,
    ministack_clients,
    moto_clients,
)
from tests.contracts.log_sources import FakeSource, KafkaSource, LogSource
from tests.servers.kafka import Kafka
from tests.servers.kafka import kafka as kafka_server
from tests.servers.ministack import Ministack
from tests.unit.adjunct.log_stores import LogStore


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with kafka_server(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def kinesis_moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogSource]:
    with moto_clients(monkeypatch):
        yield KinesisSource()


@pytest.fixture
def kinesis_ministack(
    ministack_server: Ministack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogSource]:
    with ministack_clients(ministack_server, monkeypatch):
        yield KinesisSource(ministack_server)


@pytest.fixture
def dynamodb_ministack(
    ministack_server: Ministack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogSource]:
    with ministack_clients(ministack_server, monkeypatch):
        yield TableSource(ministack_server)


@pytest.fixture(
    params=[
        "fake",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "kafka",
                "kinesis_moto",
                "kinesis_ministack",
                "dynamodb_ministack",
            )
        ),
    ]
)
def source(request: pytest.FixtureRequest) -> LogSource:
    if request.param == "fake":
        return FakeSource()
    if request.param == "kafka":
        return KafkaSource(request.getfixturevalue("broker"))
    source: LogSource = request.getfixturevalue(request.param)
    return source


@pytest.fixture
def log(source: LogSource) -> Iterator[LogInput]:
    opened = source.open()
    yield opened
    opened.close()


def read_all(log: LogInput, positions: dict[str, str]) -> list[Envelope]:
    """Returns what the log has after the positions, which it moves."""
    found: list[Envelope] = []
    newest = log.newest(positions)
    ended: set[str] = set()
    while True:
        partitions = log.partitions(positions)
        rest = [
            each
            for each in partitions
            if each not in ended and not is_reached(positions.get(each), newest.get(each))
        ]
        if not rest:
            return found
        batch = log.poll(positions, partitions)
        found += batch.envelopes
        positions |= batch.positions
        ended |= batch.ended


def pairs(source: LogSource, envelopes: Sequence[Envelope]) -> list[tuple[Any, Any]]:
    return sorted((each.key, source.plain(each.value)) for each in envelopes)


def values(source: LogSource, envelopes: Sequence[Envelope]) -> list[Any]:
    return [source.plain(each.value) for each in envelopes]


def test_all_messages_are_read_once(source: LogSource, log: LogInput) -> None:
    expected = [(f"k{number:02}", {"n": number}) for number in range(12)]
    for key, value in expected:
        source.send(key, value)
    positions: dict[str, str] = {}
    envelopes = read_all(log, positions)
    assert pairs(source, envelopes) == expected
    assert {each.stream for each in envelopes} == {log.name}
    if isinstance(source, KafkaSource | KinesisSource):
        now_ms = system_clock()
        assert all(abs(now_ms - (each.time_ms or 0)) < 600_000 for each in envelopes)
    assert read_all(log, positions) == []


def test_an_empty_stream_has_partitions_and_no_messages(source: LogSource, log: LogInput) -> None:
    assert log.partitions({})
    assert log.is_whole()
    assert read_all(log, {}) == []


def test_messages_of_a_key_are_in_order(source: LogSource, log: LogInput) -> None:
    for number in range(6):
        source.send("a", number)
        source.send("b", number)
    envelopes = read_all(log, {})
    for key in "ab":
        own = [each for each in envelopes if each.key == key]
        assert values(source, own) == list(range(6))


def test_another_reader_goes_on_after_any_message(source: LogSource, log: LogInput) -> None:
    for number in range(3):
        source.send("a", number)
    for envelope in read_all(log, {}):
        other = source.open()
        positions = log.complete({envelope.partition: envelope.next_offset}, system_clock())
        rest = values(source, read_all(other, positions))
        assert rest == list(range(source.plain(envelope.value) + 1, 3))
        other.close()


def test_the_same_reader_goes_back_to_a_position(source: LogSource, log: LogInput) -> None:
    for number in range(4):
        source.send("a", number)
    first = read_all(log, {})
    again = read_all(log, {first[1].partition: first[1].next_offset})
    assert values(source, again) == [2, 3]


def test_messages_that_arrive_later_are_read(source: LogSource, log: LogInput) -> None:
    positions: dict[str, str] = {}
    for number in range(5):
        source.send("a", number)
        assert values(source, read_all(log, positions)) == [number]


def test_a_message_without_value_has_none(source: LogSource, log: LogInput) -> None:
    source.send("a", 1)
    source.send("a", None)
    assert values(source, read_all(log, {})) == [1, None]


def test_the_marks_make_a_stream_that_was_created_again_known(
    source: LogSource, log: LogInput
) -> None:
    source.send("a", 1)
    positions: dict[str, str] = {}
    read_all(log, positions)
    positions = log.complete(positions, system_clock())
    log.newest(positions)
    source.recreate()
    other = source.open()
    with pytest.raises(StateMovedOnError):
        other.newest(positions)
    other.close()


def test_the_feed_stops_before_a_message_that_cannot_be_decoded(
    source: LogSource, log: LogInput, tmp_path: Path
) -> None:
    if isinstance(source, FakeSource | TableSource):
        pytest.skip("it has no messages of other formats")
    store = LogStore(tmp_path, log)
    source.send("k", 1)
    store.update()
    source.send("k", 2)
    source.send_invalid()
    source.send("k", 3)
    for _ in range(2):
        with pytest.raises(DataError, match=r"partition .*, offset .*: the message cannot be dec"):
            store.feed.update()
        assert store.content() == {"k": 2}
    store.close()


def test_a_store_has_the_newest_values(source: LogSource, log: LogInput, tmp_path: Path) -> None:
    store = LogStore(tmp_path, log)
    expected: dict[str, Any] = {}
    for number in range(30):
        key = f"k{number % 7}"
        expected[key] = None if number % 5 == 4 else {"n": number}
        source.send(key, expected[key])
        if number % 10 == 9:
            present = {each: value for each, value in expected.items() if value is not None}
            assert {k: source.plain(v) for k, v in store.update().items()} == present
    store.close()


def test_a_store_has_whole_datasets(source: LogSource, log: LogInput, tmp_path: Path) -> None:
    if isinstance(source, TableSource):
        pytest.skip("its changes have no end")
    store = LogStore(tmp_path, log, is_bounded=True)
    first = {f"k{number}": number for number in range(8)}
    for key, value in first.items():
        source.send(key, value)
    source.end("v1")
    source.send("k0", "second")
    assert store.update() == first
    source.end("v2")
    source.send("k1", "third")
    assert store.update() == {"k0": "second"}
    assert store.state.dataset == "v2"
    store.close()
