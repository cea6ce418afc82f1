"""Tests of WebSocket frames, with a small server that responds as API Gateway does."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sleeper.aws.clients import GatewayConnections
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.query_tracker import Connection

OPEN, CLOSED, FULL = "open=", "closed=", "full="
_STATUS = {OPEN: 200, CLOSED: 410, FULL: 413}
_KIND = {CLOSED: "GoneException", FULL: "PayloadTooLargeException"}


class Gateway(BaseHTTPRequestHandler):
    received: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        connection = self.path.removeprefix("/live/@connections/").replace("%3D", "=")
        self.received.append((connection, body))
        self.send_response(_STATUS[connection])
        if connection in _KIND:
            self.send_header("x-amzn-ErrorType", _KIND[connection])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    Gateway.received = []
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        # The test server has no TLS.
        where = f"127.0.0.1:{server.server_port}/live"
        monkeypatch.setenv("AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI", f"http://{where}")
        yield where
        server.shutdown()
        thread.join()


def connections(where: str) -> GatewayConnections:
    return GatewayConnections(lambda: f"wss://{where}")


def test_a_frame_is_sent_to_the_connection(gateway: str) -> None:
    connections(gateway).send(Connection(f"https://{gateway}", OPEN), '{"é": 1}')
    assert Gateway.received == [(OPEN, '{"é": 1}')]


def test_a_closed_connection_is_not_found(gateway: str) -> None:
    with pytest.raises(NotFoundError, match="closed="):
        connections(gateway).send(Connection(f"https://{gateway}", CLOSED), "x")


def test_a_frame_that_is_too_large_is_refused(gateway: str) -> None:
    with pytest.raises(InvalidRequestError):
        connections(gateway).send(Connection(f"https://{gateway}", FULL), "x")


def test_frames_go_only_to_the_endpoint_of_the_instance(gateway: str) -> None:
    for endpoint in ("https://evil.example/live", "evil.example", "https://[", ""):
        with pytest.raises(InvalidRequestError, match="no WebSocket"):
            connections(gateway).send(Connection(endpoint, OPEN), "x")
    with pytest.raises(InvalidRequestError, match="no WebSocket"):
        GatewayConnections(lambda: None).send(Connection(f"https://{gateway}", OPEN), "x")
    assert Gateway.received == []
