"""Connections to Kafka: when the client uses TLS, and that it verifies certificates."""

from collections.abc import Mapping

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.kafka_connection import check_connection, make_client

USER = {"sasl.username": "me"}


def settings_of(brokers: str, options: Mapping[str, str]) -> dict[str, object]:
    """Returns the settings of the client."""
    given = {**options, "bootstrap.servers": brokers}
    return make_client("here", dict, given, "s3cr3t", lambda _: None)


@pytest.mark.parametrize(
    ("brokers", "options", "protocol"),
    [
        ("broker:9092", {}, "SSL"),
        ("broker:9092", USER, "SASL_SSL"),
        ("localhost:9092,broker", USER, "SASL_SSL"),
        ("broker:9092", {"security.protocol": "sasl_ssl", **USER}, "sasl_ssl"),
        ("broker:9092", {"insecure": "true"}, "PLAINTEXT"),
        ("broker:9092", {"insecure": "true", **USER}, "SASL_PLAINTEXT"),
        ("localhost:9092", {}, "PLAINTEXT"),
        ("127.0.0.1:9092,[::1]:9093", USER, "SASL_PLAINTEXT"),
        ("127.0.0.1:9092", {"security.protocol": "SSL"}, "SSL"),
    ],
)
def test_connections_to_other_machines_have_tls_by_default(
    brokers: str, options: dict[str, str], protocol: str
) -> None:
    password = "sasl.username" in options
    check_connection("here", f"//{brokers}/topic", options, password, "--password")
    settings = settings_of(brokers, options)
    assert settings["security.protocol"] == protocol
    assert settings["enable.ssl.certificate.verification"] is True
    assert settings["ssl.endpoint.identification.algorithm"] == "https"
    assert "insecure" not in settings


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "sasl_plaintext"])
def test_a_protocol_without_tls_is_refused_before_and_at_the_use(protocol: str) -> None:
    options = {"security.protocol": protocol, **USER}
    problem = f"here: security.protocol={protocol} connects to broker without TLS .*=SASL_SSL, or"
    with pytest.raises(InvalidRequestError, match=problem):
        check_connection("here", "//localhost,broker:1/topic", options, True, "--password")
    with pytest.raises(InvalidRequestError, match=problem):
        settings_of("localhost,broker:1", options)
