"""Tests of the exporter to a webhook: settings, statuses and what errors show."""

import contextlib
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.exporters import http_client, webhook
from sleeper.instance import Instance
from tests.export_batches import make_batch, make_queue
from tests.servers.certificates import make_certificate
from tests.servers.http_receivers import Answer, HttpServer, Request, http_server

SECRET = "s3cr3t-value"


@dataclass
class Server:
    """A server that gives the answers in order, the last one for ever."""

    http: HttpServer
    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    requests: list[Request] = field(default_factory=list)

    def respond(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def server() -> Iterator[Server]:
    made: list[Server] = []
    with http_server(lambda request: made[0].respond(request)) as http:
        made.append(Server(http))
        yield made[0]


Send = Callable[..., None]


@pytest.fixture
def send(instance: Instance, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Send]:
    """Sends exports `a`, `b` and `c`; the arguments are options, a dot in a name is written __."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with ExitStack() as stack:

        def run(password: str | None = None, **options: str) -> None:
            named = {name.replace("__", ".").replace("_", "-"): v for name, v in options.items()}
            queue = make_queue(
                f"webhook:{server.http.url}/hook?token=t0k", password=password, options=named
            )
            exporter = webhook.make(instance, queue)
            stack.callback(exporter.close)
            exporter.export(make_batch(queue, [("a", {}, 1), ("b", {}, 2), ("c", None, 3)]))

        yield run


def test_the_body_has_the_queue_the_bucket_and_the_exports(send: Send, server: Server) -> None:
    send(header__X_Tenant="north")

    (request,) = server.requests
    body = json.loads(request.body)
    assert request.path == "/hook?token=t0k"
    assert request.headers["X-Tenant"] == "north"
    assert request.headers["Content-Type"] == "application/json"
    assert "Authorization" not in request.headers
    assert (body["queue"], body["bucket"]) == ("counts", 0)
    assert [(e["key"], e["sequence"]) for e in body["exports"]] == [("a", 1), ("b", 2), ("c", 3)]
    assert body["exports"][2]["value"] is None


def test_the_password_is_sent_as_a_bearer_token(send: Send, server: Server) -> None:
    send("env:HOOK_SECRET")
    assert server.requests[0].headers["Authorization"] == f"Bearer {SECRET}"


def test_the_password_is_sent_as_another_header(send: Send, server: Server) -> None:
    send("env:HOOK_SECRET", password_header="X-Api-Key")
    assert server.requests[0].headers["X-Api-Key"] == SECRET
    assert "Authorization" not in server.requests[0].headers


def test_a_password_that_signs_is_not_sent(send: Send, server: Server) -> None:
    send("env:HOOK_SECRET", sign="true")

    (request,) = server.requests
    digest = hmac.new(SECRET.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Sleeper-Signature"] == f"sha256={digest}"
    assert SECRET not in str(request.headers)


@pytest.mark.parametrize("status", [301, 307, 401, 407, 408, 425, 429, 500, 503])
def test_the_receiver_is_unavailable_by_its_status(send: Send, server: Server, status: int) -> None:
    server.answers = [Answer(status, b"later", {"Retry-After": "17"})]
    with pytest.raises(UnavailableError, match=rf"status {status} .*\(retry after 17\): later"):
        send()


@pytest.mark.parametrize("status", [400, 403, 404, 410, 413, 422])
def test_the_receiver_refuses_the_batch_by_its_status(
    send: Send, server: Server, status: int
) -> None:
    server.answers = [Answer(status, b"wrong  tenant\n")]
    with pytest.raises(InvalidRequestError, match=f"status {status} .*: wrong tenant"):
        send()


def test_a_redirect_is_not_followed(send: Send, server: Server) -> None:
    followed: list[Request] = []

    def respond(request: Request) -> Answer:
        followed.append(request)
        return Answer()

    with http_server(respond) as other:
        server.answers = [Answer(307, headers={"Location": other.url})]
        with pytest.raises(UnavailableError, match="status 307"):
            send()
    assert not followed


@pytest.mark.parametrize("status", [200, 207, 422])
def test_exports_that_the_answer_names_are_refused(send: Send, server: Server, status: int) -> None:
    refused = [{"position": 2, "reason": "no such key"}, {"position": 0}]
    server.answers = [Answer(status, json.dumps({"refused": refused}).encode())]

    with pytest.raises(RefusedExportsError) as raised:
        send()

    assert raised.value.reasons == {2: "no such key", 0: "no reason given"}


@pytest.mark.parametrize("refused", [[{"position": 3}], [{"position": -1}], ["x"], "x", [{}]])
def test_refused_exports_without_a_valid_position_are_an_error(
    send: Send, server: Server, refused: object
) -> None:
    server.answers = [Answer(200, json.dumps({"refused": refused}).encode())]
    with pytest.raises(UnavailableError, match=r"valid position \(expected 0 to 2\)"):
        send()


@pytest.mark.parametrize("body", [b"", b"ok", b"[]", b'{"refused": []}', b"\xff"])
def test_a_successful_status_with_another_body_means_that_all_are_taken(
    send: Send, server: Server, body: bytes
) -> None:
    server.answers = [Answer(200, body)]
    send()


@pytest.mark.parametrize(
    "password", [{"password": "env:HOOK_SECRET"}, {"password": "env:HOOK_SECRET", "sign": "true"}]
)
def test_errors_show_neither_the_secret_nor_the_path(
    send: Send, server: Server, password: dict[str, str]
) -> None:
    server.answers = [Answer(400, f"bad token {SECRET}".encode())]
    with pytest.raises(InvalidRequestError) as raised:
        send(**password)
    assert "bad token ***" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "t0k" not in str(raised.value)


def test_a_connection_that_the_server_closed_is_replaced(
    instance: Instance, server: Server
) -> None:
    queue = make_queue(f"webhook:{server.http.url}/")
    exporter = webhook.make(instance, queue)
    server.answers = [Answer(headers={"Connection": "close"}), Answer()]
    for _ in range(3):
        exporter.export(make_batch(queue, [("a", {}, 1)]))
    exporter.close()
    assert (len(server.requests), server.http.connections) == (3, 2)


def test_a_connection_that_the_server_closed_without_notice_is_replaced(
    instance: Instance,
) -> None:
    requests: list[Request] = []

    def respond(request: Request) -> Answer:
        requests.append(request)
        return Answer()

    with http_server(respond) as first:
        queue = make_queue(f"webhook:{first.url}/")
        exporter = webhook.make(instance, queue)
        exporter.export(make_batch(queue, [("a", {}, 1)]))
    with http_server(respond, first.port):
        exporter.export(make_batch(queue, [("a", {}, 2)]))
        exporter.close()
    assert len(requests) == 2


@pytest.mark.slow
def test_a_receiver_that_does_not_answer_is_unavailable(instance: Instance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        queue = make_queue(f"webhook:http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=1)
        exporter = webhook.make(instance, queue)
        with pytest.raises(UnavailableError, match="no answer in time"):
            exporter.export(make_batch(queue, [("a", {}, 1)]))


@pytest.mark.slow
def test_an_answer_that_arrives_byte_by_byte_does_not_hold_the_exporter(
    instance: Instance,
) -> None:
    ended = threading.Event()

    def answer_slowly(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not ended.wait(0.02):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_slowly, args=(listener,))
        thread.start()
        queue = make_queue(
            f"webhook:http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=1
        )
        try:
            with pytest.raises(UnavailableError, match="no answer in time"):
                webhook.make(instance, queue).export(make_batch(queue, [("a", {}, 1)]))
        finally:
            ended.set()
            thread.join()


def test_an_answer_above_the_limit_is_not_kept_in_memory(
    send: Send, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_ANSWER_BYTES_MAX", 100_000)
    server.answers = [Answer(200, b" " * 200_000)]
    with pytest.raises(UnavailableError, match="the answer has more than 100,000 bytes"):
        send()


def test_only_certificates_of_known_authorities_are_trusted(
    instance: Instance, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path / "server.pem")
    requests: list[Request] = []

    def respond(request: Request) -> Answer:
        requests.append(request)
        return Answer()

    with http_server(respond, certificate=certificate) as server:
        unknown = make_queue(f"webhook:{server.url}")
        with pytest.raises(UnavailableError, match=f"{server.url}: invalid certificate"):
            webhook.make(instance, unknown).export(make_batch(unknown, [("a", {}, 1)]))
        assert not requests

        known = make_queue(f"webhook:{server.url}", options={"ssl.ca.location": str(certificate)})
        exporter = webhook.make(instance, known)
        exporter.export(make_batch(known, [("a", {}, 1)]))
        exporter.close()
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://h/x", "invalid URL"),
        ("https:///x", "invalid URL"),
        ("https://h:port/x", "invalid URL"),
        ("https://schön.example/x", "invalid URL"),
        ("https://me@h/x", "user or password"),
        ("https://me:pw@h/x", "user or password"),
        ("https://h/x#y", "fragment"),
        ("https://h/a b", "percent-encoded"),
        ("http://h/x", "without TLS that verifies the server"),
        ("http://127.0.0.1.example.org/x", "without TLS that verifies the server"),
    ],
)
def test_a_url_is_refused_without_showing_it(instance: Instance, url: str, problem: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=f"queue 'counts': exporter webhook: .*{problem}"
    ) as e:
        webhook.check(instance, make_queue(f"webhook:{url}"))
    assert "pw" not in str(e.value).replace("password", "")


@pytest.mark.parametrize(
    ("options", "password", "problem"),
    [
        ({"sing": "true"}, "env:X", r"unknown option 'sing'; did you mean sign\? \(expected"),
        ({"sign": "yes"}, "env:X", "option sign is 'yes'"),
        ({"sign": "true"}, None, "option sign without a password"),
        ({"password-header": "X-Key"}, None, "password-header without a password"),
        ({"sign": "true", "password-header": "X-K"}, "env:X", "sign and password-header"),
        ({"header.Authorization": "x"}, None, "may contain a secret"),
        ({"header.X-Api-Key": "x"}, None, "may contain a secret"),
        ({"header.Host": "x"}, None, "header Host cannot be set"),
        ({"header.a b": "x"}, None, "header name 'a b' is invalid"),
        ({"header.A": "x\r\nHost: y"}, None, "value of header A is invalid"),
    ],
)
def test_options_are_refused(
    instance: Instance, options: dict[str, str], password: str | None, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        webhook.check(
            instance, make_queue("webhook:https://h/x", password=password, options=options)
        )


def test_http_is_allowed_by_an_option(instance: Instance) -> None:
    webhook.check(instance, make_queue("webhook:http://h/x", options={"insecure": "true"}))


def test_a_secret_that_no_header_can_have_is_refused_without_showing_it(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "a\nsecret")
    queue = make_queue("webhook:https://h/x", password="env:HOOK_SECRET")
    with pytest.raises(InvalidRequestError, match="cannot be in a header") as raised:
        webhook.make(instance, queue)
    assert "secret" not in str(raised.value)


def test_a_file_of_certificates_that_is_missing_is_named(
    instance: Instance, tmp_path: Path
) -> None:
    queue: ExportQueue = make_queue(
        "webhook:https://h/x", options={"ssl.ca.location": str(tmp_path / "ca.pem")}
    )
    with pytest.raises(InvalidRequestError, match=r"ca\.pem: no such file"):
        webhook.make(instance, queue)
