"""The stack of export queues."""

import json
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.metrics import ExportMetric
from sleeper.export_queue.properties import EXPORT_QUEUES
from tests.infra.synthesis import GROUP, RECEIVER, SECRET, Synthesis, as_list, synthesise

ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
SOURCE = "AWS::Lambda::EventSourceMapping"


def _allowed(synthesis: Synthesis, place: str) -> dict[str, list[str]]:
    """Returns the resources of each action that the roles with that place are allowed."""
    found: dict[str, list[str]] = {}
    for where, statement in synthesis.statements():
        if place in where and statement["Effect"] == "Allow":
            for action in as_list(statement["Action"]):
                for resource in as_list(statement.get("Resource", [])):
                    found.setdefault(action, []).append(json.dumps(resource))
    return found


def _function(synthesis: Synthesis, name: str) -> dict[str, Any]:
    return synthesis.find_named(FUNCTION, "FunctionName", f"sleeper-example-{name}")


def test_an_instance_has_no_stream_and_no_queues_by_default(example: Synthesis) -> None:
    assert "ExportQueues" not in example.templates
    assert not [t for t in example.properties("AWS::DynamoDB::Table") if "StreamSpecification" in t]


def test_new_entries_of_logs_start_the_functions_that_follow_them(platforms: Synthesis) -> None:
    (log,) = (t for t in platforms.properties("AWS::DynamoDB::Table") if "StreamSpecification" in t)
    assert log["TableName"] == "sleeper-example-transaction-log"
    assert log["StreamSpecification"] == {"StreamViewType": "KEYS_ONLY"}
    sources = [s for s in platforms.properties(SOURCE) if "StartingPosition" in s]
    # Lambda lets two functions follow a stream.
    assert len(sources) == 2
    for source in sources:
        (chosen,) = source["FilterCriteria"]["Filters"]
        assert json.loads(chosen["Pattern"]) == {
            "eventName": ["INSERT"],
            "dynamodb": {"Keys": {"item": {"S": [{"prefix": "entry#"}]}}},
        }
        # The schedule finds what a failed run missed, and a failing table must not delay others.
        assert source["MaximumRetryAttempts"] == 0
    assert sorted(s.get("MaximumBatchingWindowInSeconds", 0) for s in sources) == [0, 5]
    for name, rate in (("follow-exports", "1 minute"), ("publish-tables", "5 minutes")):
        rule = platforms.find_named("AWS::Events::Rule", "Name", f"sleeper-example-{name}")
        assert rule["ScheduleExpression"] == f"rate({rate})"


def test_exporters_cannot_use_the_permissions_for_the_network(platforms: Synthesis) -> None:
    """Exporters can be code of users, and Lambda needs these permissions for all interfaces."""
    (allowed, denied) = sorted(
        (
            statement
            for where, statement in platforms.statements()
            if where.startswith("ExportQueues/DrainRole")
            and "ec2:DeleteNetworkInterface" in as_list(statement["Action"])
        ),
        key=lambda statement: str(statement["Effect"]),
    )
    assert (allowed["Effect"], denied["Effect"]) == ("Allow", "Deny")
    assert set(denied["Action"]) == {a for a in allowed["Action"] if a.startswith("ec2:")}
    assert denied["Resource"] == "*"
    ((operator, condition),) = denied["Condition"].items()
    assert operator == "ArnEquals"
    function = json.dumps(condition["lambda:SourceFunctionArn"])
    assert ':function:sleeper-example-drain-exports"' in function


def test_the_storage_is_kept_and_has_backups(platforms: Synthesis) -> None:
    (table,) = (
        resource
        for resource in platforms.of_type("AWS::DynamoDB::Table").values()
        if resource["Properties"]["TableName"] == "sleeper-example-export-queues"
    )
    recovery = table["Properties"]["PointInTimeRecoverySpecification"]
    assert recovery == {"PointInTimeRecoveryEnabled": True}
    assert table["DeletionPolicy"].startswith("Retain")
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    keys = [key["AttributeName"] for key in table["Properties"]["KeySchema"]]
    assert keys == [EXPORT_QUEUES.key.hash, EXPORT_QUEUES.key.range]


def test_a_bucket_waits_for_a_function_that_died_only_until_its_timeout(
    platforms: Synthesis,
) -> None:
    name = "sleeper-example-export-queue.fifo"
    queue = platforms.find_named("AWS::SQS::Queue", "QueueName", name)
    timeout = _function(platforms, "drain-exports")["Timeout"]
    assert timeout <= queue["VisibilityTimeout"] <= timeout + 60
    assert queue["FifoThroughputLimit"] == "perMessageGroupId"
    platforms.find_named(
        "AWS::SQS::Queue", "QueueName", "sleeper-example-export-queue-dead-letters.fifo"
    )


def test_the_first_function_writes_no_rows_and_reads_no_secret(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "ExportQueues/FollowRole")
    assert not any(action.startswith("secretsmanager:") for action in allowed)
    assert not any("/data/" in resource for resource in allowed["s3:PutObject"])
    assert all("export-queues/*" in resource for resource in allowed["s3:DeleteObject"])
    assert all("export-queue.fifo" in resource for resource in allowed["sqs:SendMessage"])
    assert all("transaction-log" in resource for resource in allowed["dynamodb:GetRecords"])


def test_exporters_reach_only_listed_receivers(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "ExportQueues/DrainRole")
    by_arn, by_name = sorted(allowed["secretsmanager:GetSecretValue"])
    assert by_arn == f'"{SECRET}"'
    assert ":secret:index/writer-??????" in by_name
    assert "shop/reader" not in str(allowed)
    receivers = [r for r in allowed["sqs:SendMessage"] if "export-queue.fifo" not in r]
    assert receivers == [json.dumps(RECEIVER)]
    assert all("export-queues/*" in resource for resource in allowed["s3:DeleteObject"])
    assert not any(action.startswith("dynamodb:GetRecords") for action in allowed)


def test_exporters_run_in_the_given_network(
    platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    assert _function(platforms, "drain-exports")["VpcConfig"] == {
        "SecurityGroupIds": [GROUP],
        "SubnetIds": ["subnet-1", "subnet-2"],
    }
    assert "VpcConfig" not in _function(platforms, "follow-exports")
    drain = _function(with_dashboard, "drain-exports")
    assert "VpcConfig" not in drain
    network = [a for a in _allowed(with_dashboard, "ExportQueues/") if a.startswith("ec2:")]
    assert network == []


def test_subnets_of_exporters_require_security_groups(tmp_path: Path) -> None:
    file = tmp_path / "instance.properties"
    stacks = "sleeper.optional.stacks=ExportQueueStack"
    file.write_text(f"sleeper.id=example\n{stacks}\nsleeper.export.queue.subnets=s-1\n")
    with pytest.raises(InvalidRequestError, match=r"sleeper.export.queue.security.groups is not"):
        synthesise(tmp_path / "out", file)


def test_dead_and_late_exports_raise_an_alarm(
    platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    alarms = {
        a["AlarmName"].removeprefix("sleeper-example-"): a for a in platforms.properties(ALARM)
    }
    assert alarms["exports-dead"]["MetricName"] == ExportMetric.DEAD.value
    assert alarms["exports-dead"]["Threshold"] == 1
    late = alarms["exports-late"]
    assert (late["MetricName"], late["Threshold"]) == (ExportMetric.OLDEST_SECONDS.value, 3600)
    assert {each["Name"]: each["Value"] for each in late["Dimensions"]} == {
        "instance": "example",
        "kind": "export-queue",
    }
    assert {"exports-not-taken-up", "follow-exports-errors", "drain-exports-errors"} <= set(alarms)
    assert all(alarms[name]["AlarmActions"] for name in alarms if "export" in name)
    names = {a["AlarmName"] for a in with_dashboard.properties(ALARM)}
    assert "sleeper-example-exports-late" not in names


def test_administrators_manage_queues(platforms: Synthesis, example: Synthesis) -> None:
    admin = _allowed(platforms, "ClientRoles/Admin")
    assert any("export-queues" in resource for resource in admin["dynamodb:DeleteItem"])
    assert "export-queues" not in str(_allowed(example, "ClientRoles/Admin"))
