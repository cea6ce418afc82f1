"""Tests of the exporter to OpenSearch: versions, deleted documents, errors and settings."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.exporter import Exporter, RefusedExportsError
from sleeper.export_queue.exporters import opensearch
from sleeper.instance import Instance
from tests.export_batches import Export, make_batch, make_queue
from tests.servers.http_receivers import Answer, OpenSearch, Request, http_server


@pytest.fixture
def index() -> OpenSearch:
    return OpenSearch("counts")


Open = Callable[..., Exporter]


@pytest.fixture
def open_exporter(instance: Instance, index: OpenSearch) -> Iterator[Open]:
    """Opens an exporter; the arguments are options."""
    with ExitStack() as stack:
        server = stack.enter_context(http_server(lambda request: index.respond(request)))

        def run(password: str | None = None, **options: str) -> Exporter:
            url = f"opensearch:{server.url}/counts"
            exporter = opensearch.make(
                instance, make_queue(url, password=password, options=options)
            )
            stack.callback(exporter.close)
            return exporter

        yield run


def send(exporter: Exporter, *exports: Export) -> None:
    exporter.export(make_batch(make_queue("opensearch:http://localhost/counts"), exports))


def test_a_document_has_the_keys_the_values_and_the_sequence(
    open_exporter: Open, index: OpenSearch
) -> None:
    send(open_exporter(), ("ä", {"word": "x", "data": b"\0"}, 2**53 + 1))

    document = {"name": "ä", "word": "x", "amount": None, "data": "AA==", "sequence": 2**53 + 1}
    assert index.documents == {"ä": (2**53 + 1, document)}


def test_an_older_export_is_ignored_also_after_its_key_went(
    open_exporter: Open, index: OpenSearch
) -> None:
    exporter = open_exporter()
    send(exporter, ("a", {"word": "new"}, 5), ("b", None, 5))
    send(exporter, ("a", {"word": "old"}, 4), ("b", {"word": "old"}, 4), ("c", {}, 1))
    send(exporter, ("a", None, 4))

    assert {key: version for key, (version, _) in index.documents.items()} == {"a": 5, "c": 1}
    assert index.documents["a"][1]["word"] == "new"


def test_the_version_of_a_deleted_document_is_forgotten_unless_keys_that_went_are_marked(
    open_exporter: Open, index: OpenSearch
) -> None:
    now = 0.0
    index.clock = lambda: now
    for key, exporter in (("deleted", open_exporter()), ("marked", open_exporter(gone="mark"))):
        send(exporter, (key, {}, 4))
        send(exporter, (key, None, 5))
    now = 61.0

    for key in ("deleted", "marked"):
        send(open_exporter(gone="mark"), (key, {"word": "old"}, 4))

    assert index.documents["deleted"][0] == 4
    assert index.documents["marked"] == (5, {"__gone": True, "sequence": 5})


def test_a_document_that_the_server_has_no_capacity_for_lets_the_batch_wait(
    open_exporter: Open, index: OpenSearch
) -> None:
    index.busy_ids = {"b"}
    batch = [("a", {}, 1), ("b", {}, 1), ("c", {"word": "x" * 2**21}, 1)]
    with pytest.raises(UnavailableError, match="/counts: status 429: rejected_execution_exception"):
        send(open_exporter(), *batch)

    index.busy_ids = set()
    with pytest.raises(RefusedExportsError, match="mapper_parsing_exception: failed") as raised:
        send(open_exporter(), *batch)
    assert list(raised.value.reasons) == [2]
    assert set(index.documents) == {"a", "b"}


def test_keys_that_cannot_be_ids_have_a_hash_as_their_id(
    open_exporter: Open, index: OpenSearch
) -> None:
    keys = ["", "a", "ä" * 257, "ä" * 256]
    send(open_exporter(), *((key, {}, 1) for key in keys))

    hashes = {f"sha256:{sha256(key.encode()).hexdigest()}" for key in (keys[0], keys[2])}
    assert set(index.documents) == {"a", "ä" * 256, *hashes}
    assert {document["name"] for _, document in index.documents.values()} == set(keys)


def test_a_batch_is_sent_in_requests_of_limited_size(
    open_exporter: Open, index: OpenSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opensearch, "_REQUEST_BYTES", 300)
    sizes: list[int] = []
    respond = OpenSearch.respond

    def measure(own: OpenSearch, request: Request) -> Answer:
        sizes.append(len(request.body))
        return respond(own, request)

    monkeypatch.setattr(OpenSearch, "respond", measure)
    send(open_exporter(), *((f"k{n}", {}, 1) for n in range(10)))
    assert len(index.documents) == 10
    assert len(sizes) > 3
    assert max(sizes) <= 300


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"items": [{}]}', b'{"items": []}', b'{"items": [{"index": {}}]}', b"[1]"],
)
def test_another_answer_than_that_of_a_bulk_request_is_an_error(
    open_exporter: Open, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(OpenSearch, "respond", lambda _self, _request: Answer(200, body))
    with pytest.raises(UnavailableError, match="/counts: the answer"):
        send(open_exporter(), ("a", {}, 1))


def test_user_and_password_are_sent_and_not_shown(
    open_exporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_PASSWORD", "pässword")
    encoded = base64.b64encode("me:pässword".encode()).decode()
    seen: list[Any] = []

    def respond(_self: OpenSearch, request: Request) -> Answer:
        seen.append(request.headers["Authorization"])
        return Answer(403, f"no permissions for Basic {encoded}".encode())

    monkeypatch.setattr(OpenSearch, "respond", respond)
    with pytest.raises(UnavailableError, match=r"status 403 .*permissions for Basic \*\*\*"):
        send(open_exporter("env:SEARCH_PASSWORD", user="me"), ("a", {}, 1))
    assert seen == [f"Basic {encoded}"]


def test_an_index_that_does_not_exist_is_named_and_waited_for(
    open_exporter: Open, monkeypatch: pytest.MonkeyPatch, index: OpenSearch
) -> None:
    index.index = "others"
    with pytest.raises(UnavailableError, match=r"status 404 .*no such index"):
        send(open_exporter(), ("a", {}, 1))


def test_exports_wait_while_the_server_blocks_the_index(
    open_exporter: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"type": "cluster_block_exception", "reason": "index read-only / allow delete"}
    body = json.dumps({"items": [{"index": {"status": 403, "error": error}}]}).encode()
    monkeypatch.setattr(OpenSearch, "respond", lambda _self, _request: Answer(200, body))
    with pytest.raises(UnavailableError, match="status 403: cluster_block_exception: index"):
        send(open_exporter(), ("a", {}, 1))


@pytest.mark.parametrize(
    ("exporter", "options", "password", "problem"),
    [
        ("opensearch:https://h", {}, None, r"index '/' is invalid \(expected a URL that ends in"),
        ("opensearch:https://h/Counts", {}, None, "index '/Counts' is invalid"),
        ("opensearch:https://h/a/b", {}, None, "index '/a/b' is invalid"),
        ("opensearch:https://h/_all", {}, None, "index '/_all' is invalid"),
        ("opensearch:http://h/a", {}, None, "without TLS that verifies the server"),
        ("opensearch:https://h/a", {"user": "me"}, None, "only one of option user and a password"),
        ("opensearch:https://h/a", {}, "env:X", "only one of option user and a password"),
        ("opensearch:https://h/a", {"gone": "x"}, None, "option gone is 'x'"),
        ("opensearch:https://h/a", {"sign": "true"}, None, "unknown option 'sign'"),
    ],
)
def test_settings_are_refused(
    instance: Instance, exporter: str, options: dict[str, str], password: str | None, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        opensearch.check(instance, make_queue(exporter, password=password, options=options))


def test_the_body_is_lines_of_json(open_exporter: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []

    def respond(_self: OpenSearch, request: Request) -> Answer:
        bodies.append(request.body)
        return Answer(200, b'{"items": [{"index": {"status": 201}}, {"delete": {"status": 404}}]}')

    monkeypatch.setattr(OpenSearch, "respond", respond)
    send(open_exporter(), ("a\n", {"word": "\n"}, 1), ("b", None, 2))

    document = {"name": "a\n", "word": "\n", "amount": None, "data": None, "sequence": 1}
    assert [json.loads(line) for line in bodies[0].split(b"\n")[:-1]] == [
        {"index": {"_id": "a\n", "version": 1, "version_type": "external"}},
        document,
        {"delete": {"_id": "b", "version": 2, "version_type": "external"}},
    ]
