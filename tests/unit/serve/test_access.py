"""Authentication of requests."""

from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from sleeper.errors import InvalidRequestError
from sleeper.runs.transport import is_loopback
from sleeper.serve.access import Access
from sleeper.serve.routes import ENDPOINTS
from sleeper.serve.tokens import Right, Tokens, make_tokens, read_tokens, required_right

TOKEN = "a-token-of-some-length"
OTHER = "another-token-of-some-length"


async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "admitted"})


def respond(token: str | Tokens | None, scope: Scope) -> Message:
    """Returns the first ASGI message, without an event loop, because nothing waits."""
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        raise AssertionError("the body of a refused request was read")

    tokens = token if isinstance(token, Tokens) else Tokens({}, Right.READ)
    if isinstance(token, str):
        tokens = Tokens({token: Right.ADMIN})
    running = Access(application, tokens)(scope, receive, send)
    with pytest.raises(StopIteration):
        running.send(None)  # type: ignore[attr-defined]
    return messages[0]


def request(
    kind: str = "http", path: str = "/tables", method: str = "GET", **headers: str
) -> Scope:
    names = [(n.encode(), v.encode("latin-1")) for n, v in {"host": "localhost", **headers}.items()]
    return {"type": kind, "path": path, "method": method, "headers": names}


def is_admitted(token: str | Tokens | None, scope: Scope) -> bool:
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


READS = [("GET", "/tables/t"), ("POST", "/tables/t/query"), ("POST", "/sql"), ("POST", "/queries")]
WRITES = [("POST", "/tables/t/rows"), ("POST", "/tables/t/delete")]
CHANGES = [
    ("POST", "/tables"),
    ("PATCH", "/tables/t"),
    ("DELETE", "/tables/t"),
    ("POST", "/tables/t/restore"),
    ("POST", "/sleeper/tables"),
]


@pytest.mark.parametrize("right", list(Right))
def test_a_token_may_do_what_its_right_says(right: Right) -> None:
    tokens = Tokens({TOKEN: right, OTHER: Right.ADMIN})
    for needed, requests in zip(Right, (READS, WRITES, CHANGES), strict=True):
        for method, path in requests:
            scope = request(path=path, method=method, authorization=f"Bearer {TOKEN}")
            assert is_admitted(tokens, scope) == (needed <= right), (method, path)
            if needed > right:
                assert respond(tokens, scope)["status"] == 403
            other = request(path=path, method=method, authorization=f"Bearer {OTHER}")
            assert is_admitted(tokens, other)
            assert respond(tokens, request(path=path, method=method))["status"] == 401


def test_every_endpoint_needs_the_right_of_its_kind() -> None:
    """An endpoint that only reads is a GET, or one of the few posts of queries."""
    needed = {(e.method, e.path.replace("{name}", "t")): e for e in ENDPOINTS}
    reads = {each for each in needed if required_right(*each) is Right.READ}
    assert {path for method, path in reads if method != "GET"} == {path for _, path in READS[1:]}
    writes = {each for each in needed if required_right(*each) is Right.WRITE}
    assert writes == set(WRITES)


def test_changes_need_a_token_by_default_and_reads_do_not() -> None:
    tokens, new_token = make_tokens("127.0.0.1", {}, read_only=False)
    assert new_token is not None
    for method, path in READS:
        assert is_admitted(tokens, request(path=path, method=method))
    for method, path in WRITES + CHANGES:
        assert respond(tokens, request(path=path, method=method))["status"] == 401
        own = request(path=path, method=method, authorization=f"Bearer {new_token}")
        assert is_admitted(tokens, own)
    assert respond(tokens, request(authorization=f"Bearer {TOKEN}"))["status"] == 401
    assert make_tokens("127.0.0.1", {}, read_only=True)[1] is None
    assert make_tokens("127.0.0.1", {}, read_only=False)[1] != new_token


def test_hosts_reachable_by_other_machines_need_a_token() -> None:
    assert make_tokens("0.0.0.0", {TOKEN: Right.READ}, True) == (Tokens({TOKEN: Right.READ}), None)
    for host in ("0.0.0.0", "db.example"):
        with pytest.raises(InvalidRequestError, match="SLEEPER_SERVE_TOKEN"):
            make_tokens(host, {}, read_only=True)
    with pytest.raises(InvalidRequestError, match="16 characters") as error:
        make_tokens("0.0.0.0", {"too-short": Right.ADMIN}, read_only=False)
    assert "too-short" not in str(error.value)


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    assert read_tokens(file) == {TOKEN: Right.ADMIN}
    file.write_text(f"# of the loader\nwrite {TOKEN}\n\nread  {OTHER}\n")
    assert read_tokens(file) == {TOKEN: Right.WRITE, OTHER: Right.READ}
    for text, reason in (
        ("\n", "is empty"),
        (f"{TOKEN}\n{OTHER}\n", "line 1: expected a right"),
        (f"read {TOKEN}\nadmin {TOKEN}\n", "line 2: expected a right"),
        (f"write {TOKEN}\nroot {OTHER}\n", "line 2: expected a right"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidRequestError, match=reason) as error:
            read_tokens(file)
        assert TOKEN not in str(error.value)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        read_tokens(tmp_path / "nope")


def test_loopback_hosts() -> None:
    assert [h for h in ("::1", "127.9.9.9", "0.0.0.0", "::", "x") if is_loopback(h)] == [
        "::1",
        "127.9.9.9",
    ]
