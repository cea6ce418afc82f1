"""Tests of streams of Kinesis and tables of DynamoDB as inputs."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import Binary

from sleeper.adjunct.aws.dynamodb_stream import to_plain
from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.inputs import open_input
from sleeper.adjunct.inputs.log import FINISHED, parse_stream_name
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from tests.contracts.aws_log_sources import KinesisSource, TableSource, moto_clients


@pytest.fixture(autouse=True)
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sleeper.adjunct.aws.shards._REQUEST_SECONDS", 0.0)
    monkeypatch.setattr("sleeper.adjunct.aws.shards._LIST_SECONDS", 0.0)
    with moto_clients(monkeypatch):
        yield


def read_all(log: Any, positions: dict[str, str]) -> list[Any]:
    found: list[Any] = []
    ended: set[str] = set()
    while rest := [each for each in log.partitions(positions) if each not in ended]:
        batch = log.poll(positions, rest)
        found += batch.envelopes
        positions |= batch.positions
        ended |= batch.ended
    return found


def open_named(kind: str, text: str) -> Any:
    definition = StoreDefinition("words", f"{kind}:{text}")
    return open_input(InputRequest(definition, pytest.fail, Path()))


def test_records_after_a_split_follow_those_before_it() -> None:
    source = KinesisSource()
    for number in range(6):
        source.send(f"k{number}", number)
    parent = source.client.list_shards(StreamName=source.stream)["Shards"][0]["ShardId"]
    source.client.split_shard(
        StreamName=source.stream, ShardToSplit=parent, NewStartingHashKey=str(2**126)
    )
    for number in range(6, 12):
        source.send(f"k{number % 6}", number)
    positions: dict[str, str] = {}
    found = read_all(source.open(), positions)
    values = {each.key: each.value for each in found}
    assert values == {f"k{number}": number + 6 for number in range(6)}
    assert len(found) == 12
    assert positions[parent] == FINISHED


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [("", "7", [1]), ("?key=long", 7, [1]), ("?key=bytes&value=bytes", b"7", b"[1]")],
)
def test_keys_and_values_have_the_format_of_the_options(options: str, key: Any, value: Any) -> None:
    source = KinesisSource(options=options)
    source.send("7", [1])
    (envelope,) = read_all(source.open(), {})
    assert (envelope.key, envelope.value) == (key, value)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (
            "kinesis",
            "s?keys=long",
            r"unknown option 'keys'; did you mean key\? .*dataset, key, val",
        ),
        ("kinesis", "s?key=int", "option key is 'int' .expected one of: text, long, bytes"),
        ("kinesis", "s?dataset=whole", "option dataset is 'whole' .expected one of: unbounded"),
        ("dynamodb", "t?key=long", "unknown option 'key' .expected none"),
        ("dynamodb", "t?dataset=bounded", "unknown option 'dataset'"),
    ],
)
def test_options_are_checked(kind: str, text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"store 'words': input {kind}:.: {problem}"):
        open_named(kind, text)


@pytest.mark.parametrize("text", ["?key=long", "s?key", "s?key=long&key=text"])
def test_texts_that_are_no_streams_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="its options are invalid"):
        parse_stream_name("words", "kinesis", text)


@pytest.mark.parametrize("kind", ["kinesis", "dynamodb"])
def test_a_stream_that_does_not_exist_is_not_found(kind: str) -> None:
    with pytest.raises(NotFoundError, match=f"{kind}:none"):
        open_named(kind, "none").newest({})


@pytest.mark.parametrize(
    ("view", "shown"), [(None, "not been enabled"), ("KEYS_ONLY", "KEYS_ONLY")]
)
def test_a_table_without_new_images_is_refused(view: str | None, shown: str) -> None:
    source = TableSource(view=view)
    with pytest.raises(InvalidRequestError, match=f"{shown} .expected NEW_IMAGE or NEW_AND_OLD"):
        source.open().newest({})


def test_a_stream_that_was_created_again_while_it_is_read_is_an_error() -> None:
    source = KinesisSource()
    log = source.open()
    positions = log.complete({}, 0)
    created = boto3.client("kinesis").describe_stream_summary(StreamName=source.stream)
    assert created["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE"
    source.recreate()
    with pytest.raises(StateMovedOnError, match="created again"):
        log.newest(positions)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal(7), 7),
        (Decimal("7.0"), 7),
        (Decimal("1E+3"), 1000),
        (Decimal("1.5"), 1.5),
        (Decimal(2**63), float(2**63)),
        (Decimal(-(2**63)), -(2**63)),
        (Binary(b"a"), b"a"),
        ({"b", "a"}, ["a", "b"]),
        ({Decimal(2), Decimal(1)}, [1, 2]),
        ([Decimal(1), {"a": Decimal(2)}], [1, {"a": 2}]),
        (None, None),
        (True, True),
    ],
)
def test_attributes_become_plain_values(value: Any, expected: Any) -> None:
    plain = to_plain(value)
    assert plain == expected
    assert type(plain) is type(expected)
