"""The stack of adapters."""

import json
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from tests.infra.synthesis import SECRET, Synthesis, as_list, synthesise


def _allowed(synthesis: Synthesis, place: str) -> dict[str, list[str]]:
    """Returns the resources of each action that the roles with that place are allowed."""
    found: dict[str, list[str]] = {}
    for where, statement in synthesis.statements():
        if place in where and statement["Effect"] == "Allow":
            for action in as_list(statement["Action"]):
                for resource in as_list(statement.get("Resource", [])):
                    found.setdefault(action, []).append(json.dumps(resource))
    return found


def _deployed(synthesis: Synthesis) -> dict[str, Any]:
    (resource,) = synthesis.properties("Custom::SleeperProperties")
    values: dict[str, Any] = resource["Deployed"]
    return values


def test_the_starter_changes_only_due_times_and_reads_no_secret(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "Adapters/StartRole")
    assert not any(action.startswith("secretsmanager:") for action in allowed)
    assert all("adapters/*.due" in resource for resource in allowed["s3:PutObject"])
    assert all("adapter-runs.fifo" in resource for resource in allowed["sqs:SendMessage"])
    assert "s3:DeleteObject" not in allowed
    assert not any("/data/" in resource for resource in allowed["s3:GetObject"])


def test_a_task_reads_the_named_secrets_only(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "Adapters/TaskRole")
    by_arn, by_name = sorted(allowed["secretsmanager:GetSecretValue"])
    assert by_arn == f'"{SECRET}"'
    assert ":secret:shop/reader-??????" in by_name
    assert any("adapters/*" in resource for resource in allowed["s3:GetObject"])
    assert not any("adapters" in resource for resource in allowed["s3:PutObject"])
    assert "s3:DeleteObject" not in allowed


def test_a_task_starts_runs_on_emr_serverless_which_stage_rows(platforms: Synthesis) -> None:
    task = _allowed(platforms, "Adapters/TaskRole")
    assert task["emr-serverless:StartJobRun"]
    assert "/jobruns/*" in task["emr-serverless:GetJobRun"][0]
    spark = _allowed(platforms, "EmrServerless/Role")
    (staged,) = spark["s3:DeleteObject"]
    assert "bulk-import" in staged
    assert "/staged/*" in staged


def test_the_roles_of_other_parts_read_no_secret(platforms: Synthesis) -> None:
    readers = {
        where
        for where, statement in platforms.statements()
        if "secretsmanager:GetSecretValue" in as_list(statement["Action"])
    }
    places = (
        "Adapters/TaskRole",
        "ClientRoles/Admin",
        "EmrServerless/Role",
        "ExportQueues/DrainRole",
        "Network/VpcSecrets",
    )
    assert len(readers) == len(places)
    for place in places:
        assert any(reader.startswith(place) for reader in readers)


def test_a_network_of_the_deployment_has_an_endpoint_of_secrets(platforms: Synthesis) -> None:
    services = json.dumps(platforms.properties("AWS::EC2::VPCEndpoint"))
    assert ".secretsmanager" in services


def test_due_runs_are_sent_every_minute_and_can_be_paused(platforms: Synthesis) -> None:
    rule = platforms.find_named("AWS::Events::Rule", "Name", "sleeper-example-start-adapters")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    rules = _deployed(platforms)["sleeper.schedule.rules"].split(",")
    assert {"sleeper-example-start-adapters", "sleeper-example-start-tasks-adapter"} <= set(rules)


def test_tasks_run_in_the_network_of_all_tasks_with_the_added_groups(platforms: Synthesis) -> None:
    values = _deployed(platforms)
    assert values["sleeper.adapter.task.subnets"] == values["sleeper.task.subnets"]
    groups = values["sleeper.adapter.task.security.groups"]
    assert groups["Fn::Join"][1][-1].lstrip(",") == "sg-1"
    assert values["sleeper.task.security.group"] in groups["Fn::Join"][1]


def test_subnets_of_adapters_require_security_groups(tmp_path: Path) -> None:
    file = tmp_path / "instance.properties"
    text = "sleeper.id=example\nsleeper.optional.stacks=AdapterStack\nsleeper.adapter.subnets=s-1\n"
    file.write_text(text)
    with pytest.raises(InvalidRequestError, match=r"sleeper.adapter.security.groups is not set"):
        synthesise(tmp_path / "out", file)


def test_an_instance_has_no_adapters_by_default(example: Synthesis) -> None:
    assert "Adapters" not in example.templates
