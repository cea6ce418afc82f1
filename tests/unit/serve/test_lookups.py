"""Requests of few keys that wait at the same time get the responses that each gets alone."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.serve import lookups
from sleeper.serve.access import Access
from sleeper.serve.application import make_application, make_server_application
from sleeper.serve.service import QuerySlots, ServerLimits
from tests.servers.serving import OPEN

_SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "sortKeyFields": [{"name": "s", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}, {"name": "w", "type": "LongType"}]}'
)
_CALLERS = "sleeper.table.query.callers"
_ARROW = "application/vnd.apache.arrow.stream"
Response = tuple[int, str, bytes]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder: Path = tmp_path_factory.mktemp("lookups") / "instance"
    create_local_instance(folder, "test", {})
    opened = open_local_instance(folder)
    for name, points in (("t", [3]), ("narrow", []), ("closed", [])):
        create_table(opened, name, _SCHEMA, split_points=points)
        for start in (0, 1):
            keys = [key for key in range(6) for _ in range(key % 3 + 1)]
            rows = {"k": keys, "s": [start] * len(keys), "v": list(map(str, keys)), "w": keys}
            kinds = [pa.int64(), pa.int64(), pa.string(), pa.int64()]
            batch = pa.RecordBatch.from_pydict(rows, pa.schema(list(zip(rows, kinds, strict=True))))
            ingest_rows(opened, name, [batch])
    change_table_properties(opened, "narrow", {_CALLERS: '{"*": {"valueFields": ["w"]}}'})
    change_table_properties(opened, "closed", {_CALLERS: '{"somebody": {}}'})
    yield opened
    opened.close()


bodies = st.fixed_dictionaries(
    {"keys": st.lists(st.integers(-1, 7) | st.just("wrong"), min_size=1, max_size=3)},
    optional={
        "limit": st.integers(-1, 3),
        "columns": st.sampled_from([["v"], ["w", "k"], ["nope"], []]),
        "filters": st.sampled_from(["ageOff(w,1)", "nope("]),
        "aggregations": st.just("sum(w),min(v)"),
        "asOf": st.integers(1, 9),
        "ranges": st.just([[0, 2]]),
        "other": st.just(1),
    },
)
requests = st.tuples(
    st.sampled_from(["t", "t", "t", "narrow", "closed", "missing"]),
    bodies,
    st.sampled_from(["*/*", _ARROW, "text/csv"]),
)


def run(
    application: Any, work: Callable[[httpx.AsyncClient], Awaitable[Sequence[Response]]]
) -> Sequence[Response]:
    transport = httpx.ASGITransport(Access(application, OPEN), raise_app_exceptions=False)

    async def with_client() -> Sequence[Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await work(client)

    # In a thread, because it would unset the event loop of this one, which other tests use.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, with_client()).result()


async def post(client: httpx.AsyncClient, name: str, body: Any, accept: str = "*/*") -> Response:
    headers = {"Content-Type": "application/json", "Accept": accept}
    content = json.dumps(body).encode()
    response = await client.post(f"/tables/{name}/query", content=content, headers=headers)
    assert response.headers["x-content-type-options"] == "nosniff"
    kind, content = response.headers["content-type"], response.content
    if kind == _ARROW:
        # Batches may end elsewhere.
        rows = pa.ipc.open_stream(content).read_all()
        content = f"{rows.schema} {rows.to_pylist()}".encode()
    return response.status_code, kind, content


@settings(deadline=None, max_examples=15)
@given(sent=st.lists(requests, min_size=1, max_size=12))
def test_responses_at_the_same_time_are_those_of_requests_alone(
    instance: Instance, sent: list[tuple[str, Any, str]]
) -> None:
    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        return await asyncio.gather(*(post(client, *each) for each in sent))

    async def one_by_one(client: httpx.AsyncClient) -> Sequence[Response]:
        return [await post(client, *each) for each in sent]

    limits = ServerLimits()
    expected = run(make_application(instance, limits), one_by_one)
    assert run(make_server_application(instance, limits), together) == expected


def test_a_request_without_columns_is_refused(instance: Instance) -> None:
    application = make_server_application(instance, ServerLimits())
    body = {"keys": [1, 2], "columns": []}
    (response,) = run(application, lambda client: asyncio.gather(post(client, "t", body)))
    assert response[0] == 400
    assert b"no columns in the query" in response[2]


def count_queries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    original = lookups.read_together

    def read_together(queries: Sequence[Any], *others: Any) -> Any:
        counts.append(len(queries))
        return original(queries, *others)

    monkeypatch.setattr(lookups, "read_together", read_together)
    return counts


def test_requests_that_wait_are_one_query(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count_queries(monkeypatch)

    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        return await asyncio.gather(*(post(client, "t", {"keys": [n % 6]}) for n in range(50)))

    answers = run(make_server_application(instance, ServerLimits()), together)
    assert [json.loads(body.split(b"\n")[0])["k"] for _, _, body in answers] == [
        n % 6 for n in range(50)
    ]
    assert sum(counts) == 50
    assert len(counts) < 25


def test_large_responses_are_not_made_together(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        return await asyncio.gather(*(post(client, "t", {"keys": [2]}) for _ in range(20)))

    expected = run(make_server_application(instance, ServerLimits()), together)
    monkeypatch.setattr(lookups, "_RESPONSES_BYTES_MAX", 1000)
    count = lookups._count_few
    monkeypatch.setattr(lookups, "_count_few", lambda *a: made.append(count(*a)) or made[-1])
    assert run(make_server_application(instance, ServerLimits()), together) == expected
    assert 0 < max(made) < 18


def test_a_client_that_disconnects_does_not_cancel_others(instance: Instance) -> None:
    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        tasks = [asyncio.ensure_future(post(client, "t", {"keys": [n]})) for n in range(6)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[3].cancel()
        return [task.result() for task in tasks if not task.cancelled()]

    answers = run(make_server_application(instance, ServerLimits()), together)
    found = [json.loads(body.split(b"\n")[0])["k"] for _, _, body in answers]
    assert found == [1, 2, 4, 5]


def test_an_error_of_the_shared_query_is_not_a_response(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lookups, "read_together", fail)

    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        return await asyncio.gather(*(post(client, "t", {"keys": [n]}) for n in range(5)))

    answers = run(make_server_application(instance, ServerLimits()), together)
    assert [(status, json.loads(body.split(b"\n")[0])["k"]) for status, _, body in answers] == [
        (200, n) for n in range(5)
    ]


def test_a_run_that_fails_leaves_no_request_without_response(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = QuerySlots.run
    failures = iter([UnavailableError("no thread"), RuntimeError("no thread")] * 2)

    async def fail_first(slots: QuerySlots, work: Callable[[], Any]) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return await original(slots, work)

    monkeypatch.setattr(QuerySlots, "run", fail_first)

    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        tries = []
        for _ in range(6):
            tries += await asyncio.gather(*(post(client, "t", {"keys": [1]}) for _ in range(3)))
        return tries

    application = make_server_application(instance, ServerLimits())
    assert {status for status, _, _ in run(application, together)} == {200, 500, 503}


def test_too_many_requests_are_refused(instance: Instance) -> None:
    limits = ServerLimits(queries_max=1, waiting_max=2)

    async def together(client: httpx.AsyncClient) -> Sequence[Response]:
        return await asyncio.gather(*(post(client, "t", {"keys": [1]}) for _ in range(30)))

    answers = run(make_server_application(instance, limits), together)
    assert {status for status, _, _ in answers} == {200, 503}


def test_a_restricted_caller_gets_its_columns_only(instance: Instance) -> None:
    async def ask(client: httpx.AsyncClient) -> Sequence[Response]:
        one, other, wrong = {"keys": [0]}, {"keys": [0], "columns": ["w"]}, {"columns": ["v"]}
        sent = [one, other, {"keys": [0], **wrong}]
        return await asyncio.gather(*(post(client, "narrow", body) for body in sent))

    found = run(make_server_application(instance, ServerLimits()), ask)
    assert [status for status, _, _ in found] == [200, 200, 400]
    assert found[0][2] == b'{"k":0,"s":0,"w":0}\n{"k":0,"s":1,"w":0}\n'
    assert found[1][2] == b'{"w":0}\n{"w":0}\n'
