"""The proxy of the soak between a client and a server of HTTP."""

import contextlib
import http.client
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.soak.journal import Journal
from simulation.soak.proxy import Cut, Proxy, running_proxies
from tests.servers.http_receivers import Answer, Request, http_server

BODY = b"x" * 1000


class ChosenFault(random.Random):
    """Chooses one fault for each exchange, and the shortest delay."""

    cut = Cut.LOST

    def choices(self, *_: object, **__: object) -> list[Cut]:  # type: ignore[override]
        return [self.cut]

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


@pytest.fixture
def received() -> list[bytes]:
    return []


@pytest.fixture
def proxy(received: list[bytes], tmp_path: Path) -> Iterator[Proxy]:
    def respond(request: Request) -> Answer:
        received.append(request.body)
        return Answer(200, BODY)

    journal = Journal(tmp_path / "journal.jsonl")
    with http_server(respond) as server:
        proxy = Proxy("server", server.port, ChosenFault(1), journal)
        with running_proxies(proxy):
            yield proxy
    journal.close()


def post(connection: http.client.HTTPConnection) -> bytes:
    connection.request("POST", "/", BODY)
    with connection.getresponse() as response:
        return response.read()


@contextlib.contextmanager
def connect(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    ) as connection:
        yield connection


def test_a_connection_without_faults_has_many_exchanges(
    proxy: Proxy, received: list[bytes]
) -> None:
    with connect(proxy) as connection:
        assert [post(connection) for _ in range(3)] == [BODY] * 3
    assert received == [BODY] * 3


@pytest.mark.parametrize(
    ("cut", "is_received"),
    [(Cut.REFUSED, False), (Cut.CUT_REQUEST, False), (Cut.LOST, True), (Cut.CUT_RESPONSE, True)],
)
def test_a_cut_exchange_fails_and_the_server_has_a_request_whose_response_was_lost(
    proxy: Proxy,
    received: list[bytes],
    cut: Cut,
    is_received: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ChosenFault, "cut", cut)
    with connect(proxy) as connection:
        assert post(connection) == BODY
        proxy.probability = 1.0
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            post(connection)
    assert len(received) == 1 + is_received


@pytest.mark.parametrize("cut", [Cut.DELAYED, Cut.REORDERED])
def test_a_late_response_is_complete(
    proxy: Proxy, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChosenFault, "cut", cut)
    monkeypatch.setattr("simulation.soak.proxy._REORDER_SECONDS_MAX", 0.1)
    proxy.probability = 1.0
    with connect(proxy) as connection:
        start = time.monotonic()
        assert post(connection) == BODY
        assert time.monotonic() - start >= 0.1
