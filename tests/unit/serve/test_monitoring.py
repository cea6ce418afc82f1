"""Health, metrics and the access log of a server."""

import io
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.properties.table import QUERY_CALLERS
from sleeper.serve.metrics import TABLES_MAX
from sleeper.serve.observation import find_route
from tests.servers.serving import serving
from tests.unit.serve.client import TOKEN, request

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""


@contextmanager
def client(
    instance: Instance, log: io.StringIO | None = None, token: str | None = None
) -> Iterator[httpx.Client]:
    with (
        serving(instance, token=token, access_log=log) as server,
        httpx.Client(base_url=server.url, timeout=30) as session,
    ):
        yield session


def metrics(session: httpx.Client, **headers: str) -> dict[tuple[str, ...], float]:
    """Returns the values by name and labels."""
    answer = session.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def post(session: httpx.Client, table: str, rows: int) -> None:
    body = b"".join(b'{"k": %d, "v": "a"}\n' % k for k in range(rows))
    headers = {"Content-Type": "application/x-ndjson"}
    answer = session.post(f"/tables/{table}/rows", content=body, headers=headers)
    assert answer.status_code == 200


def test_health_needs_no_token_and_has_no_details(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/health", "/health/live"):
        answer = request(instance, "GET", path, token=TOKEN)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert answer.headers["Cache-Control"] == "no-store"

    def fail(*_: object) -> None:
        raise UnavailableError("the disk /secret/place failed")

    monkeypatch.setattr(type(instance.tables.index), "list", fail)
    answer = request(instance, "GET", "/health", token=TOKEN)
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    assert request(instance, "GET", "/health/live", token=TOKEN).status_code == 200


def test_metrics_count_requests_rows_and_commits(instance: Instance) -> None:
    create_table(instance, "t", SCHEMA)
    instance.jobs.queue(QueueName.INGEST).send("{}")
    with client(instance) as session:
        post(session, "t", 3)
        post(session, "t", 2)
        for path in ("/tables/t", "/tables/u", "/nope/1", "/nope/2"):
            session.get(path)
        found = metrics(session)
    assert found["sleeper_http_requests_total", "POST", "/tables/{name}/rows", "200"] == 2
    assert found["sleeper_http_requests_total", "GET", "/tables/{name}", "200"] == 1
    assert found["sleeper_http_requests_total", "GET", "/tables/{name}", "404"] == 1
    assert found["sleeper_http_requests_total", "GET", "other", "404"] == 2
    assert found["sleeper_http_request_seconds_count", "/tables/{name}/rows"] == 2
    assert found["sleeper_written_rows_total",] == 5
    assert found["sleeper_write_requests_total",] == 2
    assert found["sleeper_write_commit_seconds_count",] == 2
    assert found["sleeper_write_requests_waiting",] == 0
    assert found["sleeper_queue_messages", "ingest"] == 1
    assert found["sleeper_dead_letters", "ingest"] == 0
    assert found["sleeper_tables",] == 1
    assert found["sleeper_table_rows", "t"] == 5
    assert found["sleeper_table_files", "t"] == 2
    assert found["sleeper_table_transactions", "t"] == 3


def test_metrics_need_the_token_and_have_few_tables(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create_table(instance, "t", SCHEMA)
    many = tuple(replace(first, name=f"t{n:03}") for n in range(TABLES_MAX + 1))
    monkeypatch.setattr(type(instance.tables.index), "list", lambda *_: many)
    with client(instance, token=TOKEN) as session:
        assert session.get("/metrics").status_code == 401
        found = metrics(session, Authorization=f"Bearer {TOKEN}")
    assert found["sleeper_tables",] == TABLES_MAX + 1
    assert sum(name[0] == "sleeper_table_rows" for name in found) == TABLES_MAX


def test_metrics_leave_out_what_the_reports_refuse(instance: Instance) -> None:
    for name in ("open", "hidden", "part"):
        create_table(instance, name, SCHEMA)
    with client(instance) as session:
        assert {name[1] for name in metrics(session) if name[0] == "sleeper_table_rows"} == {
            "open",
            "hidden",
            "part",
        }
        assert any(name[0] == "sleeper_queue_messages" for name in metrics(session))
        change_table_properties(instance, "hidden", {QUERY_CALLERS.name: '{"someone": {}}'})
        change_table_properties(
            instance, "part", {QUERY_CALLERS.name: '{"local": {"valueFields": []}}'}
        )
        found = metrics(session)
        assert session.get("/status?report=tables&table=hidden").status_code == 400
    assert {name[1] for name in found if name[0].startswith("sleeper_table_")} == {"open"}
    assert not any(name[0] in ("sleeper_queue_messages", "sleeper_dead_letters") for name in found)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/", "/"),
        ("/tables/a/query", "/tables/{name}/query"),
        ("/tables/a/snapshots/expire", "/tables/{name}/snapshots/expire"),
        ("/tables/a/b/c", "other"),
        ("/queries/1", "/queries/{id:path}"),
        ("/wp-admin", "other"),
    ],
)
def test_the_route_of_a_path(path: str, route: str) -> None:
    assert find_route(path) == route


def test_the_access_log_has_a_line_for_each_request(instance: Instance) -> None:
    create_table(instance, "t", SCHEMA)
    log = io.StringIO()
    with client(instance, log) as session:
        post(session, "t", 1)
        session.get("/tables/a%0Ab?secret=1")
        session.get("/health")
    posted, missing, health = log.getvalue().splitlines()
    assert " 127.0.0.1 POST /tables/t/rows 200 " in posted
    assert posted.endswith("ms")
    assert " GET /tables/a%0Ab 404 " in missing
    assert "secret" not in missing
    assert " GET /health 200 15 " in health


@pytest.mark.parametrize(("path", "length"), [("rows", 100), ("rows", 100_000), ("delete", 100)])
def test_a_client_that_disconnects_within_its_body_is_no_error(
    instance: Instance, caplog: pytest.LogCaptureFixture, path: str, length: int
) -> None:
    create_table(instance, "t", SCHEMA)
    log = io.StringIO()
    kind = "application/x-ndjson" if path == "rows" else "application/json"
    with caplog.at_level(logging.WARNING), serving(instance, access_log=log) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(
                f"POST /tables/t/{path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{{".encode()
            )
        deadline = time.monotonic() + 30
        while not log.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert f" POST /tables/t/{path} 499 " in log.getvalue()
    assert not caplog.records
