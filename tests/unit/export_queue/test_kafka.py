"""Tests of the exporter to Kafka: settings, and what becomes of errors of messages."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.exporters import kafka
from sleeper.instance import Instance
from sleeper.schema.model import PrimitiveType
from tests.export_batches import make_batch, make_queue
from tests.servers.kafka import Kafka
from tests.servers.kafka import kafka as kafka_server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    with kafka_server(tmp_path) as server:
        yield server


@pytest.mark.slow
def test_a_message_has_the_text_of_the_key_and_the_json_of_the_export(
    instance: Instance, broker: Kafka
) -> None:
    keys = {"k": PrimitiveType.STRING, "n": PrimitiveType.LONG}
    queue = make_queue(f"kafka://{broker.address}/{broker.make_topic()}", keys=keys, values={})
    exporter = kafka.make(instance, queue)
    exporter.export(make_batch(queue, [(("ä", 1), {}, 7)], bucket=3))
    exporter.close()

    (message,) = broker.messages("exports")
    assert message.key.decode() == '["ä",1]'
    expected = '{"queue":"counts","bucket":3,"key":["ä",1],"value":{},"sequence":7}'
    assert (message.value or b"").decode() == expected
    assert message.headers == {"queue": b"counts", "sequence": b"7"}


@pytest.mark.slow
@pytest.mark.parametrize("tombstones", ["true", "false"])
def test_a_key_that_went_is_a_tombstone_unless_that_is_switched_off(
    instance: Instance, broker: Kafka, tombstones: str
) -> None:
    target = f"kafka://{broker.address}/{broker.make_topic()}"
    queue = make_queue(target, options={"tombstones": tombstones})
    exporter = kafka.make(instance, queue)
    exporter.export(make_batch(queue, [("a", None, 7)]))
    exporter.close()

    (message,) = broker.messages("exports")
    text = b'{"queue":"counts","bucket":0,"key":"a","value":null,"sequence":7}'
    assert message.value == (None if tombstones == "true" else text)
    assert message.headers["sequence"] == b"7"


@pytest.mark.slow
def test_a_message_above_the_limit_of_the_client_is_refused_alone(
    instance: Instance, broker: Kafka
) -> None:
    target = f"kafka://{broker.address}/{broker.make_topic()}"
    queue = make_queue(target, options={"message.max.bytes": "2000"})
    exporter = kafka.make(instance, queue)
    exports = [("a", {"word": "x" * 3000}, 1), ("b", {}, 2), ("c", {"word": "x" * 3000}, 3)]
    with pytest.raises(RefusedExportsError, match=r"2 exports were refused.*too large") as raised:
        exporter.export(make_batch(queue, exports))
    exporter.close()

    assert sorted(raised.value.reasons) == [0, 2]
    assert [message.key for message in broker.messages("exports")] == [b"b"]


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_unavailable_and_gets_nothing_later(
    instance: Instance,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        queue = make_queue(f"kafka://127.0.0.1:{port}/exports", timeout_seconds=1)
        exporter = kafka.make(instance, queue)
        with pytest.raises(UnavailableError, match="2 of 2 messages were not delivered"):
            exporter.export(make_batch(queue, [("a", {}, 1), ("b", {}, 2)]))
        assert exporter._producer is None  # its buffer went with it
        exporter.close()


@pytest.mark.slow
def test_the_error_names_the_broker_that_refuses_connections(instance: Instance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    queue = make_queue(f"kafka://127.0.0.1:{port}/exports", timeout_seconds=1)
    exporter = kafka.make(instance, queue)
    with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port}.*Connection refused"):
        exporter.export(make_batch(queue, [("a", {}, 1)]))
    exporter.close()


@pytest.mark.slow
def test_credentials_that_the_broker_does_not_take_are_an_error_without_them(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "s3cr3t")
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
    }
    with kafka_server(tmp_path, authenticates=True) as server:
        target = f"kafka://{server.address}/exports"
        queue = make_queue(
            target, password="env:BROKER_PASSWORD", options=options, timeout_seconds=1
        )
        exporter = kafka.make(instance, queue)
        with pytest.raises(UnavailableError, match="SASL SCRAM authentication failed") as raised:
            exporter.export(make_batch(queue, [("a", {}, 1)]))
        exporter.close()
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "options", "password", "problem"),
    [
        ("kafka:broker:9092/topic", {}, None, "target 'broker:9092/topic' is invalid"),
        ("kafka://broker:9092", {}, None, "target '//broker:9092' is invalid"),
        ("kafka://me:pw@broker/topic", {}, None, "the brokers have a user or password"),
        ("kafka://broker/a/b", {}, None, "is invalid"),
        ("kafka://b/t", {"sasl.password": "x"}, None, "unknown option 'sasl.password'"),
        ("kafka://b/t", {"plugin.library.paths": "x"}, None, "unknown option"),
        ("kafka://b/t", {"bootstrap.servers": "x"}, None, "unknown option"),
        ("kafka://b/t", {"sasl.username": "me"}, None, "only one of option sasl.username and"),
        ("kafka://b/t", {}, "env:X", "only one of option sasl.username and a password"),
        ("kafka://b/t", {"sasl.mechanism": "GSSAPI"}, None, "option sasl.mechanism is 'GSSAPI'"),
        ("kafka://b/t", {"security.protocol": "x"}, None, "security.protocol"),
        ("kafka://b/t", {"linger.ms": "x"}, None, "Invalid value for configuration property"),
        ("kafka://b/t", {"tombstones": "1"}, None, "option tombstones is '1'"),
    ],
)
def test_settings_are_refused(
    instance: Instance, target: str, options: dict[str, str], password: str | None, problem: str
) -> None:
    queue = make_queue(target, password=password, options=options)
    with pytest.raises(InvalidRequestError, match=f"queue 'counts': exporter kafka: .*{problem}"):
        kafka.check(instance, queue)


def test_the_password_is_read_where_the_exporter_runs(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BROKER_PASSWORD", raising=False)
    options = {"sasl.username": "me", "security.protocol": "SASL_SSL"}
    queue = make_queue("kafka://b/t", password="env:BROKER_PASSWORD", options=options)
    kafka.check(instance, queue)
    with pytest.raises(InvalidRequestError, match="BROKER_PASSWORD is not set"):
        kafka.make(instance, queue)


def test_files_are_read_where_the_exporter_runs(instance: Instance) -> None:
    options = {"security.protocol": "SSL", "ssl.ca.location": "/no/file.pem"}
    queue = make_queue("kafka://b/t", options=options)
    kafka.check(instance, queue)
    with pytest.raises(InvalidRequestError, match=r"ssl\.ca\.location"):
        kafka.make(instance, queue)


def test_a_client_that_is_missing_is_named_with_its_extra(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sleeper-store\[kafka\]'"):
        kafka.check(instance, make_queue("kafka://b/t"))
