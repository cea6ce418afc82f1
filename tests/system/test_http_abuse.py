"""The server answers other clients while some clients stall."""

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from sleeper.instance import Instance
from sleeper.serve.service import ServerLimits
from tests.servers.serving import Serving, serving
from tests.system.served_table import instance_with_rows

_QUERIES_MAX = 2
_SECONDS_MAX = 15


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance_with_rows(tmp_path_factory.mktemp("abuse") / "instance", 200_000) as created:
        yield created


@pytest.fixture(scope="module")
def server(instance: Instance) -> Iterator[Serving]:
    limits = ServerLimits(
        queries_max=_QUERIES_MAX, connections_max=8, header_seconds_max=1, read_seconds_max=1
    )
    with serving(instance, limits) as running:
        yield running


def connect(server: Serving, sent: bytes) -> socket.socket:
    url = urlsplit(server.url)
    client = socket.create_connection((url.hostname, url.port), timeout=_SECONDS_MAX)
    client.sendall(sent)
    return client


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /tables HTTP/1.1\r\nHost: loc",
        b"GET /tables HTTP/1.1\r\nHost: localhost\r\n\r\nGET /tables HT",
        b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
    ],
    ids=["nothing", "half", "one and a half", "half a body"],
)
def test_a_slow_request_times_out(server: Serving, sent: bytes) -> None:
    with connect(server, sent) as client:
        while client.recv(4096):  # times out if the server waits on
            pass


def test_a_request_in_pieces_has_the_same_timeout(server: Serving) -> None:
    text = b"GET /tables HTTP/1.1\r\nHost: localhost\r\nX: "
    start = time.monotonic()
    with connect(server, text) as client, contextlib.suppress(ConnectionError):
        client.settimeout(0.05)
        while time.monotonic() < start + _SECONDS_MAX:
            client.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                client.recv(1)
    assert time.monotonic() < start + _SECONDS_MAX


def test_incomplete_requests_do_not_block_others(
    server: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        clients = [connect(server, b"GET / HT") for _ in range(100)]
        assert httpx.get(f"{server.url}/tables", timeout=_SECONDS_MAX).status_code == 200
    for client in clients:
        client.close()
    assert caplog.records == []


def test_stalled_readers_release_their_slots(server: Serving) -> None:
    request = (
        b"POST /tables/numbers/query HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    clients = [connect(server, request) for _ in range(_QUERIES_MAX)]
    for client in clients:
        assert client.recv(1)
    rows = server.rows("/tables/numbers/query", {"keys": [7]})
    assert [row["id"] for row in rows] == [7]
    for client in clients:
        client.close()


def test_stalled_readers_lose_their_slots_soon_while_others_wait(instance: Instance) -> None:
    stalled = (
        b"POST /tables/numbers/query HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    limits = ServerLimits(queries_max=_QUERIES_MAX)
    with serving(instance, limits) as running, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(running, stalled)) for _ in range(_QUERIES_MAX)]
        for client in clients:
            assert client.recv(1)
        clients += [stack.enter_context(connect(running, stalled)) for _ in range(2)]
        start = time.monotonic()
        rows = running.rows("/tables/numbers/query", {"ranges": [[7, 8]]})
        assert [row["id"] for row in rows] == [7]
        assert time.monotonic() - start < limits.read_seconds_max / 2


def test_responses_have_the_documented_content_types(server: Serving) -> None:
    answers = [
        server.get("/"),
        server.get("/tables"),
        server.get("/nowhere"),
        server.get("/tables", headers={"Host": "example.org"}),
        server.post("/tables/numbers/query", {"keys": [7]}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 403, 200]
    assert [answer.headers.get("x-content-type-options") for answer in answers] == ["nosniff"] * 5


def test_large_headers_end_the_connection(server: Serving) -> None:
    with connect(server, b"GET /tables HTTP/1.1\r\nHost: localhost\r\n") as client:
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for number in range(1_000):
                client.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1_000))
            while client.recv(4096):
                pass
        # The timeout of the headers is a second.
        assert time.monotonic() < start + 0.9
