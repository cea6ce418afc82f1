"""Random requests cause no internal error.

The time is bounded, so each run tries different requests. The seed is in the message of a failure;
SLEEPER_TEST_SEED repeats a run.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import anyio
import httpx
import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import SleeperError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.text import check_statement
from sleeper.serve.access import Access
from sleeper.serve.application import make_server_application
from sleeper.serve.service import ServerLimits
from tests.seeds import choose_seed
from tests.servers.serving import OPEN

_SECONDS = 1.5
_SEED = choose_seed()
_SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"s","type":"StringType"},{"name":"v","type":"LongType"}]}"""
# Values at and beyond limits, of wrong kinds, and text that is not a name.
_VALUES = [
    None, True, 0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1.5, 1e308, float("nan"),
    float("inf"), "", "k", "t", "x" * 5000, "\x00", "\ud800", "é", "'", '"', "%", "ageOff(v,1)",
    "sum(v)", "2024-01-01", "AAEC", [], [[]], {}, [None], {"k": None}, [1, 2], ["k"], [[1, 2]],
    {"k": {"min": 1, "max": 2}}, {"min": "a"}, [{"k": [1, 2]}],
]  # fmt: skip
_MEMBERS = [
    "keys", "ranges", "regions", "columns", "limit", "asOf", "filters", "aggregations", "iterator",
    "iteratorConfig", "statement", "tableName", "queryId", "type", "processingConfig",
    "resultsPublisherConfig", "requestedValueFields", "all", "id", "to", "jobId",
    "name", "nope",
]  # fmt: skip
_PATHS = [
    "/tables", "/tables/t", "/tables/t/query", "/tables/t/delete", "/tables/t/history",
    "/tables/t/changes", "/tables/t/restore", "/tables/t/undo", "/tables/t/clone", "/sql",
    "/status", "/queries", "/queries/x", "/openapi.json", "/", "/tables/%00", "/tables/%ff/query",
    "/nowhere",
]  # fmt: skip
_SQL = [
    "SELECT", "*", "k", "s", "v", "FROM", "t", "WHERE", "k = 1", "AND", "OR", "(", ")", ",", "1",
    "9223372036854775808", "'a'", "'", '"', "--", "/*", "*/", "GROUP BY", "ORDER BY", "LIMIT",
    "OFFSET", "-1", "count(*)", "sum(v)", "JOIN", "ON", "UNION ALL", "CASE", "WHEN", "THEN", "END",
    "EXPLAIN", "DESCRIBE", "VALUES", "INTERVAL", "CAST(k AS", "decimal(99,9))", "$$", "E'\\'", "::",
    "repeat(s, 10)", "1/0", "[1]", "NULL", "EXISTS", "IN", "OVER", "WITH", "AS", "\x00", "é", ";",
]  # fmt: skip
_CALLS = [
    "ageOff", "sum", "max", "map_sum", "(", ")", ",", '"', '""', " ", "v", "k", "nope", "-1",
    "9" * 30, "9" * 5000, "٣", "\n", "\x00", "é",
]  # fmt: skip


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder: Path = tmp_path_factory.mktemp("fuzz") / "instance"
    create_local_instance(folder, "test", {"sleeper.query.memory.bytes": "64M"})
    opened_instance = open_local_instance(folder)
    create_table(opened_instance, "t", _SCHEMA)
    ingest_rows(
        opened_instance, "t", [pa.record_batch({"k": [1, 2], "s": ["a", "b"], "v": [1, 2]})]
    )
    yield opened_instance
    opened_instance.close()


def tries(name: str) -> Iterator[random.Random]:
    """Yields a random source per try until the time is up."""
    end = time.monotonic() + _SECONDS
    number = 0
    while number < 20 or time.monotonic() < end:
        yield random.Random(f"{_SEED}/{name}/{number}")
        number += 1


def words(source: random.Random, choices: list[str], count: int, between: str = "") -> str:
    return between.join(source.choice(choices) for _ in range(source.randrange(count)))


def check_sleeper_errors(name: str, choices: list[str], work: Callable[[str], object]) -> None:
    for source in tries(name):
        text = words(source, choices, 30, source.choice(["", " "]))
        try:
            work(text)
        except SleeperError:
            pass
        except Exception as error:
            pytest.fail(f"seed {_SEED}: {text!r}: {error!r}")


def test_filters_and_aggregations() -> None:
    check_sleeper_errors("filters", _CALLS, parse_filters)
    check_sleeper_errors("aggregations", _CALLS, parse_aggregations)


def test_statements(instance: Instance) -> None:
    def run(text: str) -> None:
        with open_sql(instance, f"SELECT {text}") as rows:
            rows.read_all()

    check_sleeper_errors("tokens", _SQL, check_statement)
    check_sleeper_errors("statements", _SQL, run)


def test_requests(instance: Instance) -> None:
    application = Access(make_server_application(instance, ServerLimits(seconds_max=5)), OPEN)
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)

    async def run() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for source in tries("requests"):
                message = make_request(source)
                answer = await client.send(message)
                assert answer.status_code < 500, (
                    f"seed {_SEED}: {message.method} {message.url} {message.headers} "
                    f"{message.content[:300]!r}: {answer.text}"
                )

    # In a thread, because it would unset the event loop of this one, which other tests use.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, run).result()


def make_request(source: random.Random) -> httpx.Request:
    url = "http://localhost" + source.choice(_PATHS)
    if source.random() < 0.5:
        names = ["report", "table", "limit", "from", "to", "since", "nope"]
        values = ["tables", "all", "t", "", "-1", "0", "2", "1d", "9" * 20, "9" * 5000, "é", "\x00"]
        pairs = [(source.choice(names), source.choice(values)) for _ in range(3)]
        url += "?" + "&".join(f"{name}={quote(value)}" for name, value in pairs)
    headers = {
        "Host": source.choice(["localhost", "localhost", "localhost", "[", "[::1", "a:b:c"]),
        "Content-Type": source.choice(["application/json", "application/json", "text/x"]),
        "Accept": source.choice(["*/*", "", "application/*;q=nan", ";;q=,", "text/csv"]),
    }
    method = source.choice(["GET", "POST", "POST", "PUT"])
    return httpx.Request(method, url, content=make_body(source), headers=headers)


def make_body(source: random.Random) -> bytes:
    """Returns a JSON object of known members, sometimes truncated or corrupted."""
    members = {source.choice(_MEMBERS): source.choice(_VALUES) for _ in range(source.randrange(4))}
    if source.random() < 0.3:
        members["statement"] = "SELECT " + words(source, _SQL, 12, " ")
    if source.random() < 0.3:
        members["filters"] = words(source, _CALLS, 12)
    body = bytearray(json.dumps(members).encode())
    if body and source.random() < 0.3:
        body[source.randrange(len(body))] = source.randrange(256)
    return bytes(body[: source.randrange(len(body) + 1)] if source.random() < 0.1 else body)
