"""Tests of topics of Kafka as input: settings, errors, and processes that are killed."""

import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.inputs.kafka import KafkaInput
from sleeper.adjunct.inputs.log import KeyFormat, MessageFormat, ValueFormat, parse_stream_name
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from tests.contracts.log_sources import KafkaSource
from tests.servers.kafka import Kafka
from tests.servers.kafka import kafka as kafka_server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with kafka_server(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def open_topic(text: str, password: str | None = None) -> KafkaInput:
    return KafkaInput(parse_stream_name("words", "kafka", text), password)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("b/t", "is invalid .expected kafka://BROKER:PORT/TOPIC"),
        ("//b:9092", "is invalid"),
        ("//me:pw@b/t", "the brokers have a user or password.*password= env:NAME"),
        ("//b/t?sasl.password=x", "unknown option 'sasl.password'"),
        ("//b/t?sasl.username=me", "only one of option sasl.username and a password"),
        ("//b/t?password=env:X", "only one of option sasl.username and a password"),
        ("//b/t?key=int", "option key is 'int'"),
        ("//b/t?security.protocol=x", "security.protocol"),
    ],
)
def test_settings_are_refused_before_anything_is_connected(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"store 'words': input kafka:.*{problem}"):
        open_topic(text).newest({})


def test_a_dataset_is_bounded_or_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"option dataset is 'all' .expected one of"):
        AdjunctStore.open("words", "kafka://b/t?dataset=all", tmp_path)


def test_the_password_is_read_where_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROKER_PASSWORD", raising=False)
    text, reference = "kafka://b/t?sasl.username=me", "env:BROKER_PASSWORD"
    for source, password in ((f"{text}&password={reference}", None), (text, reference)):
        with pytest.raises(InvalidRequestError, match="BROKER_PASSWORD is not set"):
            AdjunctStore.open("words", source, tmp_path, password=password)


@pytest.mark.parametrize("source", ["kafka://b/t?password=env:OTHER", "table:words"])
def test_a_password_is_named_once_and_only_for_a_server(source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="takes no password beside its own"):
        AdjunctStore.open("words", source, tmp_path, password="env:BROKER_PASSWORD")


def test_a_client_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sleeper-store\[kafka\]'"):
        open_topic("//b/t")


@pytest.mark.parametrize(
    ("key", "content", "expected"),
    [
        (KeyFormat.TEXT, "ä".encode(), "ä"),
        (KeyFormat.LONG, b"\xff" * 8, -1),
        (KeyFormat.LONG, "-12", -12),
        (KeyFormat.BYTES, b"\xff", b"\xff"),
        (KeyFormat.BYTES, "a", b"a"),
        (KeyFormat.TEXT, None, None),
    ],
)
def test_keys_are_decoded(key: KeyFormat, content: Any, expected: Any) -> None:
    assert MessageFormat(key).decode_key(content) == expected


@pytest.mark.parametrize("content", [b"", b"7", b"\0" * 9, "", "-", "1.5", "٣"])
def test_keys_that_are_no_integers_are_errors(content: bytes | str) -> None:
    with pytest.raises(ValueError, match="expected an integer"):
        MessageFormat(KeyFormat.LONG).decode_key(content)


@pytest.mark.parametrize("content", [b"", b"{", b"NaN", b"\xff", b"[" * 5000])
def test_values_that_are_no_json_are_errors(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected JSON"):
        MessageFormat().decode_value(content)


def test_values_are_decoded() -> None:
    assert MessageFormat().decode_value(b'{"a":[1,2.5,null]}') == {"a": [1, 2.5, None]}
    assert MessageFormat(value=ValueFormat.TEXT).decode_value("ä".encode()) == "ä"
    assert MessageFormat(value=ValueFormat.BYTES).decode_value(b"\xff") == b"\xff"


@pytest.mark.slow
def test_a_broker_that_refuses_connections_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = open_topic(f"//127.0.0.1:{port}/t")
    with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port}.*Connection refused"):
        log.newest({})
    log.close()


@pytest.mark.slow
def test_a_topic_that_does_not_exist_is_not_found(broker: Kafka) -> None:
    log = open_topic(f"//{broker.address}/none")
    with pytest.raises(NotFoundError, match=r"kafka://.*/none"):
        log.newest({})
    log.close()


@pytest.mark.slow
def test_an_offset_after_the_newest_means_that_the_topic_went_back(broker: Kafka) -> None:
    source = KafkaSource(broker)
    source.produce(key="a", value="1", partition=0)
    log = source.open()
    log.newest({"0": "1"})
    with pytest.raises(
        StateMovedOnError, match=r"partition 0: the topic went back: its next offse"
    ):
        log.newest({"0": "2"})
    with pytest.raises(StateMovedOnError, match="partition 7: the topic went back"):
        log.newest({"7": "2"})
    log.close()


@pytest.mark.slow
def test_offsets_before_the_oldest_are_gone(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KafkaSource(broker)
    for _ in range(3):
        source.produce(key="a", value="1", partition=0)
    log = source.open()
    assert isinstance(log, KafkaInput)
    list_offsets = log._list_offsets

    def trimmed(numbers: Any, is_newest: bool) -> dict[int, int]:
        found = list_offsets(numbers, is_newest)
        return found if is_newest else {**found, 0: 2}

    # Tansu deletes no records.
    monkeypatch.setattr(log, "_list_offsets", trimmed)
    assert not log.is_whole()
    log.newest({"0": "2"})
    with pytest.raises(StateMovedOnError, match=r"messages before offset 2 are gone .expected tho"):
        log.newest({"0": "1"})
    log.close()


@pytest.mark.slow
def test_a_decoding_error_names_the_store_and_the_place(broker: Kafka, tmp_path: Path) -> None:
    source = KafkaSource(broker, "?key=long")
    source.produce(key=(7).to_bytes(8, "big"), value="1", partition=1)
    source.produce(key=b"7", value="1", partition=1)
    with pytest.raises(
        DataError, match=r"partition 1, offset 1: the message cannot be decoded: key of 1 bytes"
    ):
        AdjunctStore.open("words", source.url, tmp_path)


_FILL = """
import sys
from sleeper.adjunct import AdjunctStore
with AdjunctStore.open("words", sys.argv[1], sys.argv[2], refresh_seconds=0.01) as store:
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_process_that_is_killed_loses_and_repeats_nothing(broker: Kafka, tmp_path: Path) -> None:
    source = KafkaSource(broker)
    expected: dict[str, int] = {}
    numbers = itertools.count()

    def send(count: int) -> None:
        for number in itertools.islice(numbers, count):
            expected[f"k{number % 97}"] = number
            source.send(f"k{number % 97}", number)

    send(300)
    for _ in range(4):
        command = [sys.executable, "-c", _FILL, source.url, str(tmp_path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        send(40)
        process.kill()
        process.communicate()
        send(10)
    with AdjunctStore.open("words", source.url, tmp_path, refresh_seconds=None) as store:
        assert dict(store.all()) == expected
        offset = store.status().offset
    newest = source.open()
    ends = newest.newest(offset)
    newest.close()
    assert {each: at for each, at in offset.items() if each.isdecimal()} == ends


@pytest.mark.slow
def test_a_load_that_is_killed_leaves_no_half_of_a_version(broker: Kafka, tmp_path: Path) -> None:
    source = KafkaSource(broker)
    for number in range(200):
        source.send(f"k{number}", number)
    program = (
        "import os, signal\nfrom sleeper.adjunct.versions.build import StoreBuild\n"
        "def kill(self, state): os.kill(os.getpid(), signal.SIGKILL)\nStoreBuild.finish = kill\n"
    )
    command = [sys.executable, "-c", program + _FILL, source.url, str(tmp_path)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == -9
    with pytest.raises(UnavailableError), AdjunctStore.open("words", path=tmp_path) as reader:
        reader.get("k1")
    with AdjunctStore.open("words", source.url, tmp_path, refresh_seconds=None) as store:
        assert dict(store.all()) == {f"k{number}": number for number in range(200)}
    assert len(list((tmp_path / "words").glob("v-*"))) == 1
