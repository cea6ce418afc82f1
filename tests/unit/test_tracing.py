"""Spans of OpenTelemetry: recorded and nested, and absent without a tracer provider."""

import subprocess
import sys

import httpx
import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import sleeper
from sleeper.compaction.service import run_compaction_message
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.jobs.queue import QueueName
from sleeper.tracing import NO_SPAN, span
from sleeper.workers.trace_exporter import exported_spans
from tests.servers.serving import serving

SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": []}
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}


class Recorded:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._exporter.get_finished_spans()]

    def all(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    def __getitem__(self, name: str) -> ReadableSpan:
        """Returns the only span of a name."""
        (found,) = self.all(name)
        return found

    def parent(self, name: str) -> str:
        """Returns the name of the parent of the last span of a name."""
        parent = self.all(name)[-1].parent
        assert parent is not None
        (found,) = (
            each.name
            for each in self._exporter.get_finished_spans()
            if each.context.span_id == parent.span_id
        )
        return found

    def clear(self) -> None:
        self._exporter.clear()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The spans of a process whose application has set a tracer provider."""
    spans = Recorded()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    return spans


@pytest.fixture
def flights(instance: sleeper.Instance) -> sleeper.Table:
    """A table with one row."""
    table = instance.create_table("flights", SCHEMA)
    table.ingest(pa.table({"k": [1]}))
    return table


def test_nothing_is_recorded_or_imported_without_a_tracer_provider() -> None:
    program = (
        "import sys; from sleeper.tracing import *; "
        "from sleeper.workers.trace_exporter import exported_spans; "
        "assert span('query', 'flights', rows=1) is NO_SPAN; "
        "assert request_span('GET', '/', None, 'http', []) is NO_SPAN\n"
        "with exported_spans(), NO_SPAN as off: off.set('a', 1); off.keep().end()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert span("query", "flights") is NO_SPAN


def test_an_ingest_contains_its_commit(flights: sleeper.Table, recorded: Recorded) -> None:
    flights.ingest(pa.table({"k": [2]}))
    ingest = recorded["ingest flights"]
    assert recorded.parent("commit") == "ingest flights"
    assert ingest.kind is SpanKind.INTERNAL
    assert dict(ingest.attributes or {}).keys() == {
        "db.system.name",
        "db.operation.name",
        "db.collection.name",
        "sleeper.job_id",
    }
    attributes = recorded["commit"].attributes or {}
    assert attributes["sleeper.transaction_types"] == ("AddFiles",)
    assert attributes["sleeper.transactions"] == 1
    assert attributes["sleeper.table_id"]


def test_a_query_ends_with_its_rows(flights: sleeper.Table, recorded: Recorded) -> None:
    rows = flights.query(keys=[[1]])
    assert "query flights" not in recorded.names
    assert len(rows.to_arrow()) == 1
    query = recorded["query flights"]
    attributes = query.attributes or {}
    assert attributes["db.system.name"] == "sleeper"
    assert attributes["db.operation.name"] == "query"
    assert attributes["db.collection.name"] == "flights"
    assert attributes["db.response.returned_rows"] == 1
    assert query.status.status_code is StatusCode.UNSET


def test_a_statement_has_a_span(
    flights: sleeper.Table, instance: sleeper.Instance, recorded: Recorded
) -> None:
    assert len(instance.sql("SELECT k FROM flights").to_arrow()) == 1
    assert (recorded["sql"].attributes or {})["db.response.returned_rows"] == 1
    with pytest.raises(InvalidRequestError):
        instance.sql("SELECT nothing FROM flights")
    assert recorded.names.count("sql") == 2


def test_an_error_is_recorded(flights: sleeper.Table, recorded: Recorded) -> None:
    with pytest.raises(InvalidRequestError):
        flights.query(keys=[[1]], columns=["missing"])
    failed = recorded["query flights"]
    assert failed.status.status_code is StatusCode.ERROR
    assert "missing" in (failed.status.description or "")
    assert (failed.attributes or {})["error.type"] == "InvalidRequestError"
    assert [event.name for event in failed.events] == ["exception"]


def test_a_query_that_fails_after_its_start_has_failed(
    flights: sleeper.Table, instance: sleeper.Instance, recorded: Recorded
) -> None:
    flights.ingest(pa.table({"k": [2]}))
    instance.set_properties({"sleeper.query.rows.max": "1"})
    with pytest.raises(InvalidRequestError):
        flights.query().to_arrow()
    assert (recorded["query flights"].attributes or {})["error.type"] == "InvalidRequestError"


def test_the_end_of_an_iterator_is_no_error(recorded: Recorded) -> None:
    for number, error in enumerate((StopIteration(), GeneratorExit())):
        span(f"work {number}").end(error)
        assert recorded[f"work {number}"].status.status_code is StatusCode.UNSET


def test_the_first_end_of_a_span_counts(recorded: Recorded) -> None:
    with span("work") as work:
        work.keep()
    assert recorded.names == []
    work.end()
    work.end(ValueError("late"))
    work.set("a", 1)
    assert recorded["work"].status.status_code is StatusCode.UNSET


def test_a_compaction_contains_its_commit(
    flights: sleeper.Table, instance: sleeper.Instance, recorded: Recorded
) -> None:
    flights.ingest(pa.table({"k": [2]}))
    flights.compact(full=True)
    (message,) = instance._ports.jobs.queue(QueueName.COMPACTION).receive()
    recorded.clear()
    run_compaction_message(instance._ports, message.body)
    attributes = recorded["compaction flights"].attributes or {}
    assert (attributes["sleeper.rows_read"], attributes["sleeper.rows_written"]) == (2, 2)
    assert attributes["sleeper.job_id"]
    committed = recorded.all("commit")[-1].attributes or {}
    assert committed["sleeper.transaction_types"] == ("CommitCompaction",)
    assert recorded.parent("commit") == "compaction flights"


def test_a_request_continues_the_trace_of_its_caller(
    flights: sleeper.Table, instance: sleeper.Instance, recorded: Recorded
) -> None:
    with serving(instance._ports) as running:
        found = running.post("/tables/flights/query", {"keys": [1]}, headers=TRACEPARENT)
        written = httpx.post(
            f"{running.url}/tables/flights/rows",
            content=b'{"k": 3}\n',
            headers={"Content-Type": "application/x-ndjson"},
        )
        listed = running.post("/sql", {"statement": "SELECT k FROM flights"})
    assert [each.status_code for each in (found, written, listed)] == [200, 200, 200]
    request = recorded["POST /tables/{name}/query"]
    assert request.parent is not None
    assert (request.parent.trace_id, request.parent.span_id) == (
        int(TRACE_ID, 16),
        int(PARENT_ID, 16),
    )
    assert request.parent.is_remote
    assert request.context.trace_id == int(TRACE_ID, 16)
    assert request.kind is SpanKind.SERVER
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/tables/{name}/query",
        "http.response.status_code": 200,
        "url.path": "/tables/flights/query",
        "url.scheme": "http",
    }
    assert recorded.parent("query flights") == "POST /tables/{name}/query"
    assert recorded.parent("write flights") == "POST /tables/{name}/rows"
    assert recorded.parent("commit") == "write flights"
    assert recorded.parent("sql") == "POST /sql"
    assert (recorded["sql"].attributes or {})["db.response.returned_rows"] == 2
    assert recorded["POST /sql"].parent is None


def test_only_errors_of_the_server_fail_a_request(
    recorded: Recorded,
    instance: sleeper.Instance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("the disk failed")

    with serving(instance._ports) as running:
        running.get("/nope")
        httpx.request("PROPFIND", f"{running.url}/health")
        monkeypatch.setattr(type(instance._ports.tables.index), "list", fail)
        running.get("/health")
    missing, unusual, failed = recorded["GET"], recorded["HTTP /health"], recorded["GET /health"]
    assert (missing.attributes or {})["http.response.status_code"] == 404
    assert "http.route" not in (missing.attributes or {})
    assert missing.status.status_code is StatusCode.UNSET
    assert (unusual.attributes or {})["http.request.method"] == "_OTHER"
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "503"


def test_the_provider_of_the_application_stays(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    with exported_spans(), span("work"):
        assert trace.get_tracer_provider() is recorded.provider
    assert recorded.names == ["work"]
