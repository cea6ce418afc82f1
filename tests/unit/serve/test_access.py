"""Who is let in."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.serve.access import Access, is_loopback, token_for

TOKEN = "a-token-of-some-length"


async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "let in"})


def answer(token: str | None, scope: Scope) -> Message:
    """The first message, without an event loop: nothing here waits."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read of who is refused")

    running = Access(application, token)(scope, receive, send)
    with pytest.raises(StopIteration):
        running.send(None)  # type: ignore[attr-defined]
    return sent[0]


def request(kind: str = "http", path: str = "/tables", **headers: str) -> Scope:
    named = [(n.encode(), v.encode("latin-1")) for n, v in {"host": "localhost", **headers}.items()]
    return {"type": kind, "path": path, "headers": named}


def is_let_in(token: str | None, scope: Scope) -> bool:
    return answer(token, scope)["type"] == "let in"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080"])
def test_without_a_token_this_machine_is_let_in(host: str) -> None:
    assert is_let_in(None, request(host=host))


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:8080", "", "localhost.evil.example"])
def test_without_a_token_other_names_are_refused(host: str) -> None:
    assert answer(None, request(host=host))["status"] == 403
    assert not is_let_in(None, request("websocket", host=host))


@pytest.mark.parametrize(
    "given", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"]
)
def test_a_wrong_token_is_refused_and_not_repeated(given: str) -> None:
    first = answer(TOKEN, request(authorization=given))
    assert first["status"] == 401
    assert (b"www-authenticate", b"Bearer") in first["headers"]
    assert TOKEN not in repr(first)


def test_the_right_token_is_let_in_by_any_name() -> None:
    assert is_let_in(TOKEN, request(host="db.example", authorization=f"Bearer {TOKEN}"))
    assert is_let_in(
        TOKEN, request("websocket", host="db.example", authorization=f"Bearer {TOKEN}")
    )


def test_the_page_and_the_description_need_no_token_and_a_websocket_does() -> None:
    assert is_let_in(TOKEN, request(path="/"))
    assert is_let_in(TOKEN, request(path="/openapi.json"))
    assert not is_let_in(TOKEN, request("websocket", path="/"))


def test_another_sites_page_opens_no_websocket() -> None:
    own = request("websocket", host="localhost:8080", origin="http://localhost:8080")
    assert is_let_in(None, own)
    for origin in ("http://evil.example", "http://localhost:9", "null"):
        other = request("websocket", host="localhost:8080", origin=origin)
        assert answer(None, other)["type"] == "websocket.close"


def test_who_listens_to_others_needs_a_token() -> None:
    assert token_for("127.0.0.1", None) is None
    assert token_for("0.0.0.0", TOKEN) == TOKEN
    for host, token in (("0.0.0.0", None), ("0.0.0.0", ""), ("db.example", None)):
        with pytest.raises(InvalidRequestError, match="SLEEPER_SERVE_TOKEN"):
            token_for(host, token)
    with pytest.raises(InvalidRequestError, match="16 characters") as refused:
        token_for("0.0.0.0", "too-short")
    assert "too-short" not in str(refused.value)


def test_only_this_machine_is_loopback() -> None:
    assert [h for h in ("::1", "127.9.9.9", "0.0.0.0", "::", "x") if is_loopback(h)] == [
        "::1",
        "127.9.9.9",
    ]
