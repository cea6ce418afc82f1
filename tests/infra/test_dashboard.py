"""The dashboard of an instance that enables it, compared with resources and metrics."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.metrics import KIND as ADJUNCT_KIND
from sleeper.adjunct.metrics import AdjunctMetric
from sleeper.adjunct.worker_task import measure_stores
from sleeper.export_queue.follow import gather_export_metrics
from sleeper.export_queue.metrics import KIND as EXPORT_QUEUE_KIND
from sleeper.export_queue.metrics import ExportMetric
from sleeper.iceberg.automatic import count_late
from sleeper.iceberg.metrics import KIND as ICEBERG_KIND
from sleeper.iceberg.metrics import IcebergMetric
from sleeper.properties.instance import OptionalStack
from sleeper.properties.values import instance_properties
from sleeper.reports.metric import (
    INSTANCE_KIND,
    INSTANCE_METRICS,
    NAMESPACE,
    TASK_METRICS,
    Metric,
    gather_table_metrics,
)
from sleeper.stash.metrics import StashMetric
from tests.infra.synthesis import ROOT, Synthesis
from tests.tables.data_table import DataTable

_SEARCHED = re.compile(
    r"SEARCH\('\{([^}]*)\} MetricName=\"(\w+)\" instance=\"(\w+)\"', '(\w+)', (\d+)\)"
)


@pytest.fixture(scope="module")
def body(with_dashboard: Synthesis) -> dict[str, Any]:
    (dashboard,) = with_dashboard.properties("AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == "sleeper-example-dashboard"
    parts = dashboard["DashboardBody"]["Fn::Join"][1]
    results: dict[str, Any] = json.loads(
        "".join(part if isinstance(part, str) else part["Ref"].lower() for part in parts)
    )
    return results


def iterate_metrics(body: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the metrics of each chart, with the chart's title."""
    for widget in body["widgets"]:
        for metric in widget["properties"].get("metrics", ()):
            yield widget["properties"]["title"], metric


def plain(body: dict[str, Any], namespace: str) -> dict[str, set[str]]:
    """Metrics that are named: by the metric, the values of the last dimension."""
    results: dict[str, set[str]] = {}
    for _, metric in iterate_metrics(body):
        if metric[0] == namespace:
            names = [part for part in metric if isinstance(part, str)]
            results.setdefault(names[1], set()).add(names[-1])
    return results


def searched(body: dict[str, Any]) -> list[tuple[str, ...]]:
    texts = [m[0]["expression"] for _, m in iterate_metrics(body) if isinstance(m[0], dict)]
    return [match for text in texts for match in _SEARCHED.findall(text)]


def test_every_queue_is_shown_with_its_age_and_its_dead_letters(
    with_dashboard: Synthesis, body: dict[str, Any]
) -> None:
    # The default results queue is the clients' to watch.
    queue_names = {p["QueueName"] for p in with_dashboard.properties("AWS::SQS::Queue")}
    queues = queue_names - {"sleeper-example-query-results"}
    dead = {name for name in queues if "-dead-letters" in name}
    text = plain(body, "AWS/SQS")
    assert text["ApproximateNumberOfMessagesVisible"] == queues
    assert text["ApproximateAgeOfOldestMessage"] == queues - dead
    titles = {t for t, m in iterate_metrics(body) if m[0] == "AWS/SQS" and m[3] in dead}
    assert titles == {"Dead letters"}


def test_every_alarm_is_shown(with_dashboard: Synthesis, body: dict[str, Any]) -> None:
    (widget,) = (w for w in body["widgets"] if w["type"] == "alarm")
    values = {arn.rpartition(":alarm:")[2] for arn in widget["properties"]["alarms"]}
    assert values == {p["AlarmName"] for p in with_dashboard.properties("AWS::CloudWatch::Alarm")}


def test_every_function_is_shown_with_errors_throttles_and_durations(
    with_dashboard: Synthesis, body: dict[str, Any]
) -> None:
    functions = {p["FunctionName"] for p in with_dashboard.properties("AWS::Lambda::Function")}
    assert len(functions) > 20
    text = plain(body, "AWS/Lambda")
    assert text == dict.fromkeys(("Errors", "Throttles", "Duration"), functions)


def test_tasks_are_shown_by_their_kind(body: dict[str, Any]) -> None:
    kinds = {"ingest", "compaction", "bulk_export", "adapter", "stash"}
    of_tasks = {metric.value: kinds for metric in TASK_METRICS}
    of_stashes = {metric.value: {"stash"} for metric in StashMetric}
    of_queues = {metric.value: {EXPORT_QUEUE_KIND} for metric in ExportMetric}
    of_stores = {metric.value: {ADJUNCT_KIND} for metric in AdjunctMetric}
    of_instance = {metric.value: {INSTANCE_KIND} for metric in INSTANCE_METRICS}
    of_tables = {metric.value: {ICEBERG_KIND} for metric in IcebergMetric}
    systems = of_stashes | of_queues | of_stores | of_tables
    assert plain(body, NAMESPACE) == of_tasks | systems | of_instance
    for _, metric in iterate_metrics(body):
        if metric[0] == NAMESPACE:
            assert metric[2:6] == ["instance", "Example", "kind", metric[5]]


def test_dashboard_searches_cover_all_table_metrics(body: dict[str, Any]) -> None:
    result = searched(body)
    assert {name for _, name, *_ in result} == {
        m.value for m in Metric if m not in (*TASK_METRICS, *INSTANCE_METRICS)
    }
    assert {(schema, instance) for schema, _, instance, *_ in result} == {
        ("Sleeper,instance,table", "Example")
    }
    assert {seconds for *_, seconds in result} == {"600"}


def test_table_charts_match_the_recorded_metrics(body: dict[str, Any], tmp_path: Path) -> None:
    gathered = {metric.value for metric in gather_table_metrics(DataTable(tmp_path).store)}
    held_metrics = {name for _, name, _, statistic, _ in searched(body) if statistic == "Maximum"}
    assert held_metrics == gathered


def test_functions_write_every_metric() -> None:
    sources = [path.read_text() for path in (ROOT / "lambdas").glob("*/handler.py")]
    sources.append((ROOT / "core/sleeper/aws/watch.py").read_text())
    sources += map(
        inspect.getsource, (gather_table_metrics, gather_export_metrics, measure_stores, count_late)
    )
    names = {name for text in sources for name in re.findall(r"\b(\w*Metric)\.([A-Z_]+)", text)}
    enumerations = (Metric, StashMetric, ExportMetric, AdjunctMetric, IcebergMetric)
    assert names == {(each.__name__, name) for each in enumerations for name in each.__members__}


def test_charts_fit_into_rows_and_use_the_period_of_the_properties(
    body: dict[str, Any],
) -> None:
    rows: dict[int, int] = {}
    for widget in body["widgets"]:
        assert widget["x"] + widget["width"] <= 24
        rows[widget["y"]] = rows.get(widget["y"], 0) + widget["width"]
    assert set(rows.values()) == {24}
    periods = {
        m[-1]["period"] for _, m in iterate_metrics(body) if m[0] in ("AWS/SQS", "AWS/Lambda")
    }
    assert periods == {120}


def test_the_dashboard_of_an_instance_without_tasks_shows_its_other_parts() -> None:
    # The CDK loads slowly, which workers that do not run this test need not wait for.
    import aws_cdk as cdk
    from aws_cdk.assertions import Match, Template

    from stacks.dashboard import DashboardStack
    from stacks.deployment import Deployment

    properties = instance_properties(
        {"sleeper.id": "bare", "sleeper.optional.stacks": OptionalStack.DASHBOARD.value}
    )
    stack = cdk.Stack(cdk.App(), "Bare")
    deployment = Deployment(properties, code=None, functions=["sleeper-bare-sweep"])  # type: ignore[arg-type]
    template = Template.from_stack(DashboardStack(stack, "Dashboard", deployment=deployment))
    template.resource_count_is("AWS::CloudWatch::Dashboard", 1)
    template.has_resource_properties(
        "AWS::CloudWatch::Dashboard",
        {"DashboardName": "sleeper-bare-dashboard", "DashboardBody": Match.any_value()},
    )
    text = json.dumps(template.to_json())
    assert "CommitsApplied" in text
    assert "TasksRunning" not in text
    assert "LeafPartitions" not in text


def test_an_instance_has_no_dashboard_by_default(example: Synthesis) -> None:
    assert example.of_type("AWS::CloudWatch::Dashboard") == {}


def test_nag_finds_nothing(with_dashboard: Synthesis) -> None:
    report = json.loads((with_dashboard.folder / "validation-report.json").read_text())
    assert report["pluginReports"] == []
