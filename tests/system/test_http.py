"""The HTTP API, used by a real client over a real socket."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.instance import Instance
from sleeper.serve.service import ServerLimits
from tests.servers.serving import Serving, serving
from tests.system.served_table import instance_with_rows

ROWS = 20_000
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance_with_rows(tmp_path_factory.mktemp("http") / "instance", ROWS) as instance:
        yield instance


@pytest.fixture(scope="module")
def server(numbers: Instance) -> Iterator[Serving]:
    with serving(numbers, ServerLimits(seconds_max=20, body_bytes_max=4096)) as running:
        yield running


def next_or_broken(pieces: Iterator[bytes]) -> bytes | None:
    """Returns the next chunk, or None if the response was cut off. A complete response fails."""
    try:
        return next(pieces)
    except httpx.RemoteProtocolError:
        return None


def reason(answer: httpx.Response) -> str:
    body = answer.json()
    assert set(body) == {"error", "reason"}
    text: str = body["reason"]
    return text


def test_tables_are_listed_and_described(server: Serving) -> None:
    tables = server.get("/tables").json()["tables"]
    assert [(t["name"], t["online"]) for t in tables] == [
        ("empty", True),
        ("numbers", True),
        ("wide", True),
    ]
    table = server.get("/tables/numbers").json()
    assert (table["rows"], table["leaves"], table["id"]) == (ROWS, 4, tables[1]["id"])
    assert [f["name"] for f in table["schema"]["valueFields"]] == ["name"]
    assert server.get("/tables/nope").status_code == 404
    assert "nope" in reason(server.get("/tables/nope"))


def test_rows_are_json_lines_by_default(server: Serving) -> None:
    answer = server.post("/tables/numbers/query", {"keys": [7, 19_999, -1]})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text == '{"id":7,"name":"row 7"}\n{"id":19999,"name":"row 19999"}\n'


def test_rows_are_an_arrow_stream_on_request(server: Serving) -> None:
    rows = server.rows("/tables/numbers/query", {"ranges": [[4_990, 15_010]], "columns": ["id"]})
    assert [row["id"] for row in rows] == list(range(4_990, 15_010))


def test_a_large_result_is_streamed_whole(server: Serving) -> None:
    lines = server.post("/tables/numbers/query", {}).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(ROWS))


def test_an_empty_result_is_an_empty_body_and_an_arrow_stream_with_its_schema(
    server: Serving,
) -> None:
    assert server.post("/tables/empty/query", {}).content == b""
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    stream = pa.ipc.open_stream(server.post("/tables/empty/query", {}, headers=accept).content)
    assert stream.schema.names == ["id", "name"]
    assert stream.read_all().num_rows == 0


def test_a_query_may_read_an_old_version(server: Serving) -> None:
    assert server.rows("/tables/numbers/query", {"asOf": 1, "limit": 5}) == []


def test_sql_over_all_tables(server: Serving) -> None:
    early = {"statement": "SELECT count(*) AS n FROM numbers", "asOf": 1}
    assert server.rows("/sql", early) == [{"n": 0}]
    early = {"statement": "SELECT count(*) AS n FROM numbers, empty", "asOf": {"numbers": 1}}
    assert server.rows("/sql", early) == [{"n": 0}]
    rows = server.rows("/sql", {"statement": "SELECT count(*) AS n, max(id) AS m FROM numbers"})
    assert rows == [{"n": ROWS, "m": ROWS - 1}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM 'http://127.0.0.1/x.parquet'",
        "SELECT * FROM 's3://bucket/x.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "SELECT * FROM information_schema.df_settings",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "COPY numbers TO '/tmp/out.parquet'",
        "INSERT INTO numbers VALUES (1, 'x')",
        "SET datafusion.execution.batch_size = 1",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/out.csv'",
        "SHOW ALL",
        "DROP TABLE numbers",
        "SELECT getenv('PATH')",
        "SELECT 1; SELECT 2",
        "nonsense",
        "",
    ],
)
def test_sql_reads_nothing_but_tables(server: Serving, statement: str) -> None:
    answer = server.post("/sql", {"statement": statement})
    assert answer.status_code == 400
    assert reason(answer)


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/tables/nope/query", {}, 404, "nope"),
        ("/tables/numbers/query", {"ranges": [[9, 3]]}, 400, "is empty"),
        ("/tables/numbers/query", {"keys": ["x"]}, 400, "keys[0]"),
        ("/tables/numbers/query", {"columns": ["nope"]}, 400, "nope"),
        ("/tables/numbers/query", {"columns": []}, 400, "no column"),
        ("/tables/numbers/query", {"asOf": 99}, 400, "99"),
        ("/tables/numbers/query", {"iterator": "Nope"}, 400, "Nope"),
        ("/tables/numbers/query", {"limt": 1}, 400, "limt"),
        ("/tables/numbers/query", [1], 400, "JSON object"),
        ("/tables/numbers/query", {"keys": [1] * 3000}, 413, "4,096 bytes"),
        ("/sql", {}, 400, "statement"),
        ("/sql", {"statement": "SELECT nope FROM numbers"}, 400, "nope"),
        ("/sql", {"statement": "SELECT id FROM numbers", "asOf": 99}, 400, "99"),
        ("/sql", {"statement": "SELECT id FROM numbers", "asOf": {"empty": 1}}, 400, "empty"),
        ("/sql", {"statement": "SELECT id FROM numbers", "asOf": "x"}, 400, "as of 'x'"),
        ("/sql", {"statement": "SELECT 1/0"}, 400, "zero"),
        ("/queries", {"tableName": "nope", "regions": []}, 404, "nope"),
        ("/queries", {"regions": []}, 400, "tableName"),
        ("/nowhere", {}, 404, "not found"),
        ("/status", {}, 405, "not allowed"),
    ],
)
def test_an_invalid_request_is_refused_with_its_reason(
    server: Serving, path: str, body: object, status: int, says: str
) -> None:
    answer = server.post(path, body)
    assert answer.status_code == status, answer.text
    assert says in reason(answer)


def test_only_json_is_accepted_and_only_rows_are_returned(server: Serving) -> None:
    plain = {"Content-Type": "text/plain"}
    answer = httpx.post(f"{server.url}/sql", content=b"{}", headers=plain)
    assert (answer.status_code, "application/json" in reason(answer)) == (415, True)
    as_json = {"Content-Type": "application/json"}
    for content in (b"{", b"\xff", b"[" * 2000):
        answer = httpx.post(f"{server.url}/sql", content=content, headers=as_json)
        assert (answer.status_code, "not JSON" in reason(answer)) == (400, True)
    answer = server.post("/sql", {"statement": "SELECT 1"}, headers={"Accept": "text/html"})
    assert answer.status_code == 406
    assert "application/x-ndjson" in reason(answer)


def test_a_large_body_without_a_content_length_is_refused(server: Serving) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"statement": "'
        for _ in range(100):
            yield b"x" * 1000

    headers = {"Content-Type": "application/json"}
    assert httpx.post(f"{server.url}/sql", content=endless(), headers=headers).status_code == 413


def test_reports_are_returned(server: Serving) -> None:
    (tables,) = server.get("/status").json()["reports"]
    assert [row["name"] for row in tables["rows"]] == ["empty", "numbers", "wide"]
    (jobs,) = server.get("/status?report=ingest-jobs&table=numbers&limit=1").json()["reports"]
    assert len(jobs["rows"]) == 1
    for query, status in (("report=nope", 400), ("limit=x", 400), ("table=nope", 404)):
        assert server.get(f"/status?{query}").status_code == status


def test_a_query_is_queued_and_its_status_reported(server: Serving, numbers: Instance) -> None:
    from sleeper.workers.runner import run_instance

    answer = server.post(
        "/queries",
        {"queryId": "by-http", "tableName": "numbers", "regions": [{"id": {"min": 0, "max": 9}}]},
    )
    assert (answer.status_code, answer.json()) == (202, {"queryId": "by-http"})
    assert server.get("/queries/by-http").status_code == 404
    run_instance(numbers, until_idle=True, workers=1)
    status = server.get("/queries/by-http").json()
    assert (status["state"], status["rowCount"], status["error"]) == ("COMPLETED", 9, None)


def test_hidden_columns_and_rows_are_not_returned(numbers: Instance, server: Serving) -> None:
    callers = "sleeper.table.query.callers"
    change_table_properties(numbers, "empty", {callers: '{"somebody": {}}'})
    try:
        answers = [
            server.post("/tables/empty/query", {}),
            server.post("/sql", {"statement": "SELECT * FROM empty"}),
            server.post("/queries", {"tableName": "empty", "regions": []}),
        ]
        assert [answer.status_code for answer in answers] == [400, 400, 400]
        change_table_properties(numbers, "empty", {callers: '{"*": {"valueFields": []}}'})
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        seen = server.post("/tables/empty/query", {}, headers=accept)
        assert pa.ipc.open_stream(seen.content).schema.names == ["id"]
        assert server.post("/tables/empty/query", {"columns": ["name"]}).status_code == 400
        by_sql = server.post("/sql", {"statement": "SELECT * FROM empty"}, headers=accept)
        assert pa.ipc.open_stream(by_sql.content).schema.names == ["id"]
        assert server.post("/sql", {"statement": "SELECT name FROM empty"}).status_code == 400
    finally:
        change_table_properties(numbers, "empty", {callers: ""})


def test_endless_sql_is_stopped_with_its_reason(numbers: Instance) -> None:
    with serving(numbers, ServerLimits(seconds_max=1)) as short:
        start = time.monotonic()
        answer = short.post("/sql", {"statement": ENDLESS})
        assert (answer.status_code, "1 s" in reason(answer)) == (400, True)
        assert "sleeper.serve.query.time.max.seconds" in reason(answer)
        assert time.monotonic() - start < 60


def test_sql_that_exhausts_its_memory_does_not_affect_the_server(numbers: Instance) -> None:
    with serving(numbers) as server:
        for statement in (
            "SELECT sum(length(lpad(name, 10000000, 'x'))) FROM numbers",
            "SELECT cardinality(generate_series(1, 1000000000))",
        ):
            answer = server.post("/sql", {"statement": statement})
            assert (answer.status_code, "memory" in reason(answer)) == (400, True)
        assert server.rows("/sql", {"statement": "SELECT 1 AS one"}) == [{"one": 1}]


def test_a_broken_result_stream_is_an_error(numbers: Instance) -> None:
    statement = "SELECT value, repeat('x', 100) FROM generate_series(1, 1000000000000)"
    with serving(numbers, ServerLimits(seconds_max=1)) as short:
        for accept in ("application/x-ndjson", "application/vnd.apache.arrow.stream"):
            last = b""
            body, headers = {"statement": statement}, {"Accept": accept}
            with httpx.stream(
                "POST", f"{short.url}/sql", json=body, headers=headers, timeout=60
            ) as answer:
                assert answer.status_code == 200
                pieces = answer.iter_bytes()
                while (piece := next_or_broken(pieces)) is not None:
                    last = (last + piece)[-1000:]
            if "json" in accept:
                assert "1 s" in json.loads(last.splitlines()[-1])["reason"]


def test_disconnecting_cancels_the_query(numbers: Instance) -> None:
    with serving(numbers, ServerLimits(queries_max=1)) as small:
        short = httpx.Timeout(60, read=0.5)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{small.url}/sql", json={"statement": ENDLESS}, timeout=short)
        # There is one slot: it must be free again.
        assert small.rows("/sql", {"statement": "SELECT 1 AS one"}) == [{"one": 1}]
        rows = {"statement": "SELECT * FROM generate_series(1, 1000000000000)"}
        with httpx.stream("POST", f"{small.url}/sql", json=rows, timeout=60) as answer:
            assert next(answer.iter_bytes())
        assert small.rows("/sql", {"statement": "SELECT 1 AS one"}) == [{"one": 1}]


def test_excess_queries_wait_and_further_ones_are_refused(numbers: Instance) -> None:
    limits = ServerLimits(queries_max=1, waiting_max=1, seconds_max=3)
    with serving(numbers, limits) as small:
        answers: list[int] = []

        def ask() -> None:
            answers.append(small.post("/sql", {"statement": ENDLESS}).status_code)

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
            time.sleep(0.3)
        assert small.get("/tables").status_code == 200  # which is no query
        for thread in asking:
            thread.join()
    assert sorted(answers) == [400, 400, 503]
    assert answers[0] == 503


def test_a_token_is_required(numbers: Instance) -> None:
    with serving(numbers, token=TOKEN) as protected:
        refusals = protected.get("/tables")
        assert refusals.status_code == 401
        assert reason(refusals)
        let_in = {"Authorization": f"Bearer {TOKEN}"}
        assert protected.get("/tables", headers=let_in).status_code == 200
        assert protected.get("/openapi.json").status_code == 200


def test_a_page_of_another_origin_cannot_send_requests(server: Serving) -> None:
    assert server.get("/tables", headers={"Host": "evil.example"}).status_code == 403
    preflight: Any = httpx.options(f"{server.url}/sql", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in preflight.headers
