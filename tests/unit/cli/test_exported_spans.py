"""The export of spans by `sleeper serve`, `sleeper run` and workers, and its variables."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.util._once import Once

from sleeper import DISTRIBUTION, Instance
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import submit_ingest
from sleeper.serve import server
from sleeper.tracing import NO_SPAN, span
from sleeper.workers import runner
from sleeper.workers.trace_exporter import exported_spans
from tests.servers.http_receivers import Answer, Request, http_server
from tests.unit.cli.conftest import Sleeper


class Collector:
    """A collector of traces, and what it received."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def respond(self, request: Request) -> Answer:
        assert request.path == "/v1/traces"
        is_gzip = request.headers.get("Content-Encoding") == "gzip"
        self.bodies.append(gzip.decompress(request.body) if is_gzip else request.body)
        return Answer(body=b"", headers={"Content-Type": "application/x-protobuf"})

    def spans(self) -> list[tuple[str, str]]:
        """Returns the services and names of the spans."""
        found = []
        for body in self.bodies:
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                values = {a.key: a.value.string_value for a in group.resource.attributes}
                for scope in group.scope_spans:
                    found += [(values["service.name"], each.name) for each in scope.spans]
        return found


@contextmanager
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Runs a collector to which this process and its children export."""
    collector = Collector()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    with http_server(collector.respond) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield collector


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [("serve", server, "serve"), ("run", runner, "run_instance")],
)
def test_commands_export_the_spans_of_their_work(
    sleeper: Sleeper,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    module: object,
    function: str,
) -> None:
    def work(*_: object) -> None:
        with span("work"):
            pass

    monkeypatch.setattr(module, function, work)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "flights-store")
    with collecting(monkeypatch) as collector:
        assert sleeper(command).status == 0
        assert collector.spans() == [("flights-store", "work")]


def test_workers_export_the_spans_of_their_jobs(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instance.create_table("flights", {"rowKeyFields": [{"name": "k", "type": "LongType"}]})
    file = tmp_path / "rows.csv"
    file.write_text("k\n2\n")
    with collecting(monkeypatch) as collector:
        submit_ingest(instance._ports, "flights", [str(file)])
        instance.run_until_idle(workers=1)
        assert {("sleeper", "ingest flights"), ("sleeper", "commit")} <= set(collector.spans())


@pytest.mark.parametrize(
    ("variables", "warning"),
    [
        ({}, ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, ""),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1]:1"}, ""),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin' (expected otlp"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc' (expected http/protobuf)",
        ),
    ],
)
def test_variables_that_request_no_export(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    warning: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with exported_spans():
        assert span("work") is NO_SPAN
    assert bool(caplog.messages) == bool(warning)
    assert warning in caplog.text


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with exported_spans():
        assert span("work") is NO_SPAN
    assert caplog.messages == [
        "traces are not exported: opentelemetry.sdk.resources is not installed: "
        f"pip install '{DISTRIBUTION}[otel]'"
    ]


def test_an_invalid_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "-1")
    with pytest.raises(InvalidRequestError, match=r"OTEL_\*: .*positive"), exported_spans():
        pass
