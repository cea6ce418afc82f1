"""Rows that are posted: what is added, what is refused, and repeated requests."""

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.ingest.row_writer import RowWriter
from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.serve import row_writes, service
from sleeper.serve.service import ServerLimits
from tests.servers.serving import serving
from tests.unit.serve.client import TOKEN, read_keys, read_version, request

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""
JSON_LINES, CSV = "application/x-ndjson", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def table(instance: Instance) -> Instance:
    create_table(instance, "t", SCHEMA, split_points=[5])
    return instance


def post(
    instance: Instance,
    body: bytes,
    kind: str = JSON_LINES,
    key: str | None = None,
    name: str = "t",
    headers: dict[str, str] | None = None,
    **options: Any,
) -> httpx.Response:
    sent = {"Content-Type": kind, **(headers or {})}
    if key is not None:
        sent["Idempotency-Key"] = key
    path = f"/tables/{name}/rows"
    return request(instance, "POST", path, content=body, headers=sent, **options)


def arrow_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


BODIES = [
    (JSON_LINES, b'{"k": 7, "v": "a"}\n\n{"v": "b", "k": 1}'),
    ("application/x-ndjson; charset=utf-8", b'{"k": 7, "v": "a"}\n{"v": "b", "k": 1}\n'),
    (CSV, b"v,k\na,7\nb,1\n"),
    (ARROW, arrow_stream(pa.record_batch({"v": ["a", "b"], "k": pa.array([7, 1], pa.int32())}))),
]


LARGE = ServerLimits(body_bytes_max=10)


@pytest.mark.parametrize("limits", [None, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_rows_of_each_format_are_added_to_their_leaves(
    table: Instance, kind: str, body: bytes, limits: ServerLimits | None
) -> None:
    answer = post(table, body, kind, limits=limits)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"number": 2, "rows": 2, "alreadyDone": False}
    with open_query(table, "t", Query()) as result:
        assert result.read_all().to_pylist() == [{"k": 1, "v": "b"}, {"k": 7, "v": "a"}]
    with table.table("t").state.reading() as state:
        assert sorted(each.rows for each in state.files.references()) == [1, 1]


def test_a_body_of_some_size_is_written_by_its_route(table: Instance) -> None:
    body = b"".join(b'{"k": %d, "v": "%s"}\n' % (k, b"x" * 1000) for k in range(100))
    assert post(table, body).json() == {"number": 2, "rows": 100, "alreadyDone": False}
    assert read_keys(table) == list(range(100))


@pytest.mark.parametrize("limits", [None, LARGE], ids=["small", "large"])
def test_a_repeated_request_with_a_key_adds_no_row(
    table: Instance, limits: ServerLimits | None
) -> None:
    body = b'{"k": 1, "v": "a"}\n{"k": 2, "v": "b"}\n'
    first = post(table, body, key="once", limits=limits).json()
    assert first == {"number": 3, "rows": 2, "alreadyDone": False}
    before = read_version(table)
    # The key is the same for a small and a large request, and may be quoted.
    for again in (post(table, body, key='"once"'), post(table, body, key="once", limits=LARGE)):
        assert again.json() == first | {"alreadyDone": True}
    other = post(table, body.replace(b"b", b"c"), key="once", limits=limits)
    assert (other.status_code, other.json()["error"]) == (409, "Conflict")
    assert "once" in other.json()["reason"]
    assert read_version(table) == before
    assert read_keys(table) == [1, 2]
    # Without a key, each request adds its rows.
    post(table, body, limits=limits)
    assert read_keys(table) == [1, 1, 2, 2]


@pytest.mark.parametrize("limits", [None, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (JSON_LINES, b'{"k": 1, "v": "a"}\n{"k": "x", "v": "b"}', "row 2: field 'k'"),
        (JSON_LINES, b'{"k": 1, "v": "a"}\n{"k": 1}\n', "row 2: field 'v'"),
        (JSON_LINES, b'{"k": 1, "v": "a", "w": 1}', "row 1"),
        (JSON_LINES, b'{"k": 1, "v": "a"} {"k": 2, "v": "b"}', "row 1"),
        (JSON_LINES, b"no JSON at all", "row 1: not a JSON object"),
        (CSV, b"k,v\n1,a\nx,b\n", "row 2: field 'k'"),
        (CSV, b"k,w\n1,a\n2,b\n", "missing: 'v'"),
        (CSV, "k,v\n1,\u00e9\u00e8\n".encode("latin-1"), "not UTF-8 text"),
        (ARROW, b"no Arrow stream", "not an Arrow stream"),
        (ARROW, arrow_stream(pa.record_batch({"k": ["x"], "v": ["a"]})), "field 'k'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_row_and_field(
    table: Instance, kind: str, body: bytes, reason: str, limits: ServerLimits | None
) -> None:
    answer = post(table, body, kind, limits=limits)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]
    assert "(request)" in answer.json()["reason"]
    assert str(table.storage.spill_folder()) not in answer.json()["reason"]
    assert read_version(table) == 1
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_requests_that_are_refused(table: Instance) -> None:
    row = b'{"k": 1, "v": "a"}'
    assert post(table, row, name="nope").status_code == 404
    # A page of another site can send such a request without asking.
    assert post(table, row, "text/plain").status_code == 415
    empty = post(table, b"")
    assert (empty.status_code, "no rows" in empty.json()["reason"]) == (400, True)
    long = post(table, row, key="x" * 201)
    assert (long.status_code, "Idempotency-Key" in long.json()["reason"]) == (400, True)
    large = post(table, row, limits=ServerLimits(body_bytes_max=5, rows_bytes_max=10))
    assert (large.status_code, large.json()["reason"]) == (413, "the body has more than 10 bytes")
    assert post(table, row, token=TOKEN).status_code == 401
    read_only = post(table, row, read_only_reason="the server is read-only: a test")
    assert (read_only.status_code, read_only.json()["reason"]) == (
        403,
        "the server is read-only: a test",
    )
    assert read_version(table) == 1
    assert list(table.storage.spill_folder().glob("request-*")) == []


def test_requests_beyond_those_that_may_wait_are_refused(
    table: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnavailableError("10,000 requests wait to be written: try again later")

    monkeypatch.setattr(RowWriter, "_check_space", refuse)
    for row in (b'{"k": 1, "v": "a"}', b'{"k": 1, "v": "%s"}' % (b"x" * 100_000)):
        answer = post(table, row)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert "wait to be written" in answer.json()["reason"]
    assert read_version(table) == 1


def test_too_many_large_bodies_are_refused(
    table: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_LARGE_WRITES_MAX", 0)
    answer = post(table, b'{"k": 1, "v": "a"}', limits=LARGE)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert "too many large bodies" in answer.json()["reason"]
    assert post(table, b'{"k": 1, "v": "a"}').status_code == 200


def test_a_body_that_is_late_is_refused(table: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writes, "_BODY_SECONDS_MAX", 0.05)
    with serving(table, LARGE) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            client.sendall(
                b"POST /tables/t/rows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
                b"Content-Type: application/x-ndjson\r\n\r\n{"
            )
            assert client.recv(4096).startswith(b"HTTP/1.1 408 ")
    assert read_version(table) == 1


@pytest.mark.parametrize("limits", [None, LARGE], ids=["small", "large"])
def test_restricted_callers_may_not_write(table: Instance, limits: ServerLimits | None) -> None:
    row = b'{"k": 1, "v": "a"}'
    callers = '{"local": {"valueFields": []}, "*": {}}'
    change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
    answer = post(table, row, limits=limits)
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert "caller 'local' may not" in answer.json()["reason"]
    change_table_properties(table, "t", {"sleeper.table.query.callers": '{"local": {}}'})
    assert post(table, row, limits=limits).status_code == 200


@pytest.mark.parametrize("limits", [None, LARGE], ids=["small", "large"])
def test_a_snapshot_table_takes_no_posted_rows(
    instance: Instance, limits: ServerLimits | None
) -> None:
    create_table(instance, "t", SCHEMA, {"sleeper.table.type": "snapshot"})
    answer = post(instance, b'{"k": 1, "v": "a"}', limits=limits)
    assert (answer.status_code, "snapshot table" in answer.json()["reason"]) == (400, True)
    assert read_version(instance) == 1
