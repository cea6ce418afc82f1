"""Alarms: their runbooks, their metrics, their price, and the mail that they send."""

import json
import re
from typing import Any

from sleeper.reports.metric import INSTANCE_METRICS, NAMESPACE
from tests.infra.synthesis import ROOT, Synthesis
from tests.infra.test_dashboard import body, iterate_metrics

__all__ = ["body"]
ALARM = "AWS::CloudWatch::Alarm"
_RUNBOOK = ROOT / "docs" / "alarms.md"
# CloudWatch asks no price for the first ones of an account.
_FREE_METRICS = 10


def alarms_of(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    """Returns the properties of alarms by their names without the prefix."""
    alarms = synthesis.properties(ALARM)
    return {re.sub("^sleeper-[a-z]+-", "", each["AlarmName"]): each for each in alarms}


def test_every_alarm_has_a_runbook_and_every_runbook_an_alarm(
    example: Synthesis, platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    deployed = set[str]().union(*map(alarms_of, (example, platforms, with_dashboard)))
    runbooks = set(re.findall(r"^### `([a-z-]+)`$", _RUNBOOK.read_text(), re.MULTILINE))
    assert len(deployed) > _FREE_METRICS
    assert runbooks == deployed


def test_every_alarm_names_its_runbook_and_is_sent(platforms: Synthesis) -> None:
    for name, alarm in alarms_of(platforms).items():
        assert alarm["AlarmDescription"].endswith(f"docs/alarms.md#{name}")
        assert alarm["AlarmActions"]


def test_the_alarms_of_a_default_instance_are_the_free_ones(example: Synthesis) -> None:
    """An expression would have the price of its metrics, so that none saves money."""
    alarms = alarms_of(example).values()
    assert len(alarms) <= _FREE_METRICS
    assert not any("Metrics" in each for each in alarms)


def test_the_dashboard_shows_the_metric_of_every_alarm(
    with_dashboard: Synthesis, body: dict[str, Any]
) -> None:
    shown = {tuple(p for p in m if isinstance(p, str)) for _, m in iterate_metrics(body)}
    for name, alarm in alarms_of(with_dashboard).items():
        dimensions = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
        values = [each for each in dimensions.values() if isinstance(each, str)]
        metric = (alarm["Namespace"], alarm["MetricName"])
        assert any(set(values) <= set(each) and each[:2] == metric for each in shown), name


def test_what_the_watch_publishes_has_an_alarm(example: Synthesis) -> None:
    judged = {each["MetricName"] for each in alarms_of(example).values()}
    assert {metric.value for metric in INSTANCE_METRICS} <= judged
    missing = {name: each["TreatMissingData"] for name, each in alarms_of(example).items()}
    # The watch publishes nothing while there is nothing to report, so only its own runs are missed.
    assert [name for name, value in missing.items() if value == "missing"] == ["watch-stopped"]
    assert set(missing.values()) == {"missing", "notBreaching"}
    assert alarms_of(example)["failing"]["Namespace"] == NAMESPACE


def test_a_new_instance_has_no_alarm_before_the_watch_has_run(example: Synthesis) -> None:
    """CloudWatch does not tell a new metric from one without values, except by this state.

    The deployment makes the first run, after which the lack of runs is a change of state.
    """
    alarm = alarms_of(example)["watch-stopped"]
    assert alarm["InsufficientDataActions"] == alarm["AlarmActions"]
    (written,) = example.properties("Custom::SleeperProperties")
    assert written["Watch"] == "sleeper-example-watch-instance"
    others = [each for name, each in alarms_of(example).items() if name != "watch-stopped"]
    assert not any("InsufficientDataActions" in each for each in others)


def test_the_watch_knows_every_function_and_schedule(platforms: Synthesis) -> None:
    function = platforms.find_named(
        "AWS::Lambda::Function", "FunctionName", "sleeper-example-watch-instance"
    )
    text = function["Environment"]["Variables"]["SLEEPER_WATCHED"]
    watched = json.loads(text)
    # Lambda accepts 4 KiB of variables.
    assert len(text) < 3000
    names = {p["FunctionName"] for p in platforms.properties("AWS::Lambda::Function")}
    of_deployment = {"write-properties", "define-tables"}
    assert (
        set(watched["functions"])
        == {name.removeprefix("sleeper-example-") for name in names} - of_deployment
    )
    rules = platforms.properties("AWS::Events::Rule")
    assert sum(minutes > 0 for minutes in watched["functions"].values()) == len(rules)
    tables = {p["TableName"] for p in platforms.properties("AWS::DynamoDB::Table")}
    assert set(watched["tables"]) <= tables
    assert {watched["watch"], *watched["throttled"]} <= set(watched["functions"])


def test_every_log_group_expires(platforms: Synthesis, with_dashboard: Synthesis) -> None:
    for synthesis in (platforms, with_dashboard):
        groups = synthesis.properties("AWS::Logs::LogGroup")
        assert len(groups) > len(synthesis.properties("AWS::Lambda::Function"))
        assert {group["RetentionInDays"] for group in groups} == {30}


def test_a_deployment_without_an_address_is_warned_of(example: Synthesis) -> None:
    assert example.properties("AWS::SNS::Subscription") == []
    warnings = (example.folder / "sleeper-example.metadata.json").read_text()
    assert "nobody receives the alarms: set sleeper.errors.email" in warnings
