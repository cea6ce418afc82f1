"""The rule of connections to other machines."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.runs.transport import insecure_connection, must_verify, parse_host, read_insecure


@pytest.mark.parametrize(
    ("hosts", "is_needed"),
    [
        (("localhost",), False),
        (("LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"), False),
        ((), False),
        (("db.example",), True),
        (("localhost", "db.example"), True),
        (("0.0.0.0",), True),
        (("127.0.0.1.example.org",), True),
        (("localhost.example",), True),
        (("10.0.0.1",), True),
        (("",), True),
    ],
)
def test_only_connections_of_this_machine_are_exempt(
    hosts: tuple[str, ...], is_needed: bool
) -> None:
    assert must_verify(hosts, is_insecure=False) is is_needed
    assert not must_verify(hosts, is_insecure=True)


def test_only_true_allows_an_insecure_connection() -> None:
    assert read_insecure("here", {"insecure": "true"})
    assert not read_insecure("here", {"insecure": "false"})
    assert not read_insecure("here", {})
    for text in ("", "True", "1", "yes"):
        with pytest.raises(InvalidRequestError, match=f"here: insecure is '{text}'"):
            read_insecure("here", {"insecure": text})


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("broker", "broker"),
        ("broker:9092", "broker"),
        ("[::1]:9092", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
    ],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert parse_host(address) == host


def test_the_error_names_the_host_that_is_elsewhere_and_both_ways_out() -> None:
    error = insecure_connection("queue q", ("localhost", "h"), "a URL redis:", "a URL rediss:")
    assert str(error) == (
        "queue q: a URL redis: connects to h without TLS that verifies the server (expected a URL "
        "rediss:, or insecure=true)"
    )
