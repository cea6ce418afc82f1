"""Metrics of a server and its instance in the format of Prometheus.

Label values are bounded: routes and statuses are those of the API, and only the first tables by
name have metrics of their own. What is read from the instance is read at each scrape.
"""

from collections.abc import Callable, Iterator
from functools import partial

from anyio import to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from sleeper.errors import SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.reports.access import check_history_access, check_report_access
from sleeper.reports.output import ReportKind
from sleeper.serve.access import identify_caller

TABLES_MAX = 200
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self, instance: Instance) -> None:
        registry = CollectorRegistry()
        count, measure = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        of_request = ("method", "route", "status")
        self._registry = registry
        self._requests = count("sleeper_http_requests", "Requests over HTTP.", of_request)
        self._seconds = measure(
            "sleeper_http_request_seconds",
            "Time from the headers of a request to the end of its response.",
            ("route",),
            buckets=_SECONDS,
        )
        self._rows = count("sleeper_written_rows", "Rows that requests added.")
        self._writes = count("sleeper_write_requests", "Requests that added rows.")
        self._commits = measure(
            "sleeper_write_commit_seconds",
            "Time to write and commit the rows of requests that waited together.",
            buckets=_SECONDS,
        )
        self._waiting = Gauge(
            "sleeper_write_requests_waiting",
            "Requests whose rows wait to be written.",
            registry=registry,
        )
        self._instance = instance

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request over HTTP."""
        label = method if method in _METHODS else "other"
        self._requests.labels(label, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_group(self, requests: int, rows: int, seconds: float) -> None:
        """Counts the rows of requests that were committed together."""
        self._writes.inc(requests)
        self._rows.inc(rows)
        self._commits.observe(seconds)

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Sets the function that counts the requests whose rows wait."""
        self._waiting.set_function(count)

    async def respond(self, request: Request) -> Response:
        """Responds with the metrics of the server, and of what the caller may see."""
        collector = _InstanceCollector(self._instance, identify_caller(request))

        def work() -> bytes:
            visible = CollectorRegistry()
            visible.register(collector)
            return generate_latest(self._registry) + generate_latest(visible)

        text = await to_thread.run_sync(work)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _InstanceCollector(Collector):
    """Reads queues and tables. Omits those that cannot be read, so that the rest is reported.

    Also omits tables that the caller may not see completely, and the queues unless it may see all
    tables completely.
    """

    def __init__(self, instance: Instance, caller: str) -> None:
        self._instance = instance
        self._caller = caller

    def describe(self) -> list[Metric]:
        """Returns nothing, so that the registry does not read the instance at the start."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._tables()

    def _queues(self) -> Iterator[Metric]:
        messages = GaugeMetricFamily(
            "sleeper_queue_messages", "Messages of a queue, also those in work.", labels=["queue"]
        )
        dead = GaugeMetricFamily("sleeper_dead_letters", "Dead letters.", labels=["queue"])
        for name in self._instance.jobs.queues if self._may_see_queues() else ():
            try:
                counts = self._instance.jobs.queue(name).counts()
            except SleeperError:
                continue
            messages.add_metric([name.value], counts.unfinished)
            dead.add_metric([name.value], counts.dead)
        yield messages
        yield dead

    def _may_see_queues(self) -> bool:
        try:
            check_report_access(self._instance, ReportKind.QUEUES, None, self._caller)
        except SleeperError:
            return False
        return True

    def _tables(self) -> Iterator[Metric]:
        families = [
            GaugeMetricFamily(f"sleeper_table_{name}", text, labels=["table"])
            for name, text in (
                ("rows", "Rows of a table, before aggregation."),
                ("files", "Data files of a table."),
                ("bytes", "Bytes of the data files of a table."),
                ("transactions", "The number of the newest transaction of a table."),
            )
        ]
        try:
            refs = sorted(self._instance.tables.index.list(), key=lambda ref: ref.name)
        except SleeperError:
            refs = []
        yield GaugeMetricFamily("sleeper_tables", "Tables of the instance.", len(refs))
        for ref in refs[:TABLES_MAX]:
            table = OpenTable(self._instance, ref)
            try:
                check_history_access(table, self._caller)
                with table.state.reading() as state:
                    totals, number = state.files.totals(), state.number
            except SleeperError:
                continue
            values = (totals.rows, totals.files, totals.bytes, number)
            for family, value in zip(families, values, strict=True):
                family.add_metric([ref.name], value)
        yield from families
