"""Authentication of requests."""

from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.runs.transport import is_loopback
from sleeper.serve.access import Access, check_token, read_token

TOKEN = "a-token-of-some-length"


async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "admitted"})


def respond(token: str | None, scope: Scope) -> Message:
    """Returns the first ASGI message, without an event loop, because nothing waits."""
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        raise AssertionError("the body of a refused request was read")

    running = Access(application, token)(scope, receive, send)
    with pytest.raises(StopIteration):
        running.send(None)  # type: ignore[attr-defined]
    return messages[0]


def request(kind: str = "http", path: str = "/tables", **headers: str) -> Scope:
    names = [(n.encode(), v.encode("latin-1")) for n, v in {"host": "localhost", **headers}.items()]
    return {"type": kind, "path": path, "headers": names}


def is_admitted(token: str | None, scope: Scope) -> bool:
    return respond(token, scope)["type"] == "admitted"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080"])
def test_loopback_names_are_admitted_without_a_token(host: str) -> None:
    assert is_admitted(None, request(host=host))


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:8080", "", "localhost.evil.example"])
def test_other_names_are_refused_without_a_token(host: str) -> None:
    assert respond(None, request(host=host))["status"] == 403
    assert not is_admitted(None, request("websocket", host=host))


@pytest.mark.parametrize(
    "given", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"]
)
def test_wrong_token_is_refused_and_not_echoed(given: str) -> None:
    first = respond(TOKEN, request(authorization=given))
    assert first["status"] == 401
    assert (b"www-authenticate", b"Bearer") in first["headers"]
    assert TOKEN not in repr(first)


def test_right_token_is_admitted_for_any_host() -> None:
    assert is_admitted(TOKEN, request(host="db.example", authorization=f"Bearer {TOKEN}"))
    assert is_admitted(
        TOKEN, request("websocket", host="db.example", authorization=f"Bearer {TOKEN}")
    )


def test_page_and_openapi_need_no_token_but_websockets_do() -> None:
    assert is_admitted(TOKEN, request(path="/"))
    assert is_admitted(TOKEN, request(path="/openapi.json"))
    assert not is_admitted(TOKEN, request("websocket", path="/"))


def test_page_of_another_site_cannot_open_a_websocket() -> None:
    own = request("websocket", host="localhost:8080", origin="http://localhost:8080")
    assert is_admitted(None, own)
    for origin in ("http://evil.example", "http://localhost:9", "null"):
        other = request("websocket", host="localhost:8080", origin=origin)
        assert respond(None, other)["type"] == "websocket.close"


def test_hosts_reachable_by_other_machines_need_a_token() -> None:
    assert check_token("127.0.0.1", None) is None
    assert check_token("0.0.0.0", TOKEN) == TOKEN
    for host, token in (("0.0.0.0", None), ("0.0.0.0", ""), ("db.example", None)):
        with pytest.raises(InvalidRequestError, match="SLEEPER_SERVE_TOKEN"):
            check_token(host, token)
    with pytest.raises(InvalidRequestError, match="16 characters") as error:
        check_token("0.0.0.0", "too-short")
    assert "too-short" not in str(error.value)


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    assert read_token(file) == TOKEN
    file.write_text("\n")
    with pytest.raises(InvalidRequestError, match="is empty"):
        read_token(file)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        read_token(tmp_path / "nope")


def test_loopback_hosts() -> None:
    assert [h for h in ("::1", "127.9.9.9", "0.0.0.0", "::", "x") if is_loopback(h)] == [
        "::1",
        "127.9.9.9",
    ]
