"""The stack of stashes."""

import json
from typing import Any

from sleeper.stash.destination import reading_policy
from sleeper.stash.metrics import StashMetric
from tests.infra.synthesis import Synthesis, as_list

BUCKET = "AWS::S3::Bucket"
ALARM = "AWS::CloudWatch::Alarm"
CREATED = '"sleeper-example-stashes-"'


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


def _buckets(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return {
        json.dumps(resource["Properties"]["BucketName"]): resource
        for resource in synthesis.of_type(BUCKET).values()
    }


def _only_stashes(resource: str) -> bool:
    return "our-stashes" in resource or "example-stashes-" in resource


def test_the_bucket_is_encrypted_private_and_outlives_the_stack(platforms: Synthesis) -> None:
    (bucket,) = (each for name, each in _buckets(platforms).items() if "example-stashes-" in name)
    properties = bucket["Properties"]
    assert properties["BucketEncryption"]
    assert all(properties["PublicAccessBlockConfiguration"].values())
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
    # Pruned stashes are gone, and nothing expires by itself.
    assert "VersioningConfiguration" not in properties
    rules = properties["LifecycleConfiguration"]["Rules"]
    assert [sorted(rule) for rule in rules] == [["AbortIncompleteMultipartUpload", "Status"]]
    (denied,) = (
        statement
        for where, statement in platforms.statements()
        if where.startswith("Stash/Stashes") and statement["Effect"] == "Deny"
        if "Bool" in statement["Condition"]
    )
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert "example-stashes-" in json.dumps(_deployed(platforms)["sleeper.stash.bucket"])


def test_a_given_bucket_is_used_instead(with_dashboard: Synthesis) -> None:
    assert not any("stashes" in name for name in _buckets(with_dashboard))
    assert "sleeper.stash.bucket" not in _deployed(with_dashboard)
    for place in ("Stash/AdvanceRole", "Stash/TaskRole"):
        allowed = _allowed(with_dashboard, place)
        written = [each for each in allowed["s3:PutObject"] if _only_stashes(each)]
        assert len(written) == 1
        assert ":s3:::our-stashes/*" in written[0]


def test_a_task_reads_tables_and_writes_stashes_only(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "Stash/TaskRole")
    assert any("/*/data/*" in resource for resource in allowed["s3:GetObject"])
    own = [resource for resource in allowed["s3:PutObject"] if not _only_stashes(resource)]
    assert len(own) == 1
    assert '/stashes/*"' in own[0]
    assert "s3:DeleteObject" not in allowed
    assert "sqs:SendMessage" not in allowed
    written = [resource for action in ("dynamodb:PutItem",) for resource in allowed.get(action, ())]
    assert written
    assert all("-tracker" in resource for resource in written)


def test_the_control_function_reads_no_rows_and_deletes_only_stashes(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "Stash/AdvanceRole")
    data = [resource for resource in allowed["s3:GetObject"] if "/data/" in resource]
    assert len(data) == 1
    assert "/*/data/*.sketches" in data[0]
    assert all(
        _only_stashes(resource) or '/stashes/*"' in resource
        for resource in allowed["s3:DeleteObject"]
    )
    assert all("stash-tasks" in resource for resource in allowed["sqs:SendMessage"])
    # Holds are entries of the log, which may be in the data bucket.
    written = [each for each in allowed["s3:PutObject"] if not _only_stashes(each)]
    assert all('/stashes/*"' in each or '/*/log/*"' in each for each in written)


def test_spark_writes_stashes_and_only_the_control_function_starts_it(
    platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    assert _allowed(platforms, "Stash/AdvanceRole")["emr-serverless:StartJobRun"]
    assert "emr-serverless:StartJobRun" not in _allowed(platforms, "Stash/TaskRole")
    spark = _allowed(platforms, "EmrServerless/Role")
    assert any(_only_stashes(resource) for resource in spark["s3:PutObject"])
    assert any('/stashes/*"' in resource for resource in spark["s3:PutObject"])
    assert any("/*/data/*" in resource for resource in spark["s3:GetObject"])
    assert not any(_only_stashes(resource) for resource in spark.get("s3:DeleteObject", []))
    # A deployment without EMR Serverless writes all tables by tasks.
    assert "emr-serverless:StartJobRun" not in _allowed(with_dashboard, "Stash/AdvanceRole")


def test_the_admin_role_may_start_and_cancel_stashes(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "ClientRoles/Admin")
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert any(_only_stashes(resource) for resource in allowed[action]), action
        assert any('/stashes/*"' in resource for resource in allowed[action]), action
    assert not any("stashes" in each for each in _allowed(platforms, "Query")["s3:GetObject"])


def test_the_policy_of_readers_is_an_output(
    platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    given = with_dashboard.templates["Instance"]["Outputs"]["StashReaderPolicy"]["Value"]
    assert json.loads(given) == reading_policy("s3://our-stashes")
    created = platforms.templates["Instance"]["Outputs"]["StashReaderPolicy"]["Value"]
    account = {"Ref": "AWS::AccountId"}
    assert created["Fn::Join"][1][1::2] == [account, account]
    text = "".join(part if isinstance(part, str) else "1" for part in created["Fn::Join"][1])
    assert json.loads(text) == reading_policy("s3://sleeper-example-stashes-1")


def test_stashes_are_advanced_every_minute_and_can_be_paused(platforms: Synthesis) -> None:
    rule = platforms.find_named("AWS::Events::Rule", "Name", "sleeper-example-advance-stashes")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    rules = _deployed(platforms)["sleeper.schedule.rules"].split(",")
    assert {"sleeper-example-advance-stashes", "sleeper-example-start-tasks-stash"} <= set(rules)


def test_a_failed_stash_raises_an_alarm(platforms: Synthesis) -> None:
    alarm = platforms.find_named(ALARM, "AlarmName", "sleeper-example-stashes-failed")
    assert (alarm["MetricName"], alarm["Namespace"]) == (StashMetric.FAILED.value, "Sleeper")
    assert {each["Name"]: each["Value"] for each in alarm["Dimensions"]} == {
        "instance": "example",
        "kind": "stash",
    }
    assert alarm["AlarmActions"]
    names = {each["AlarmName"] for each in platforms.properties(ALARM)}
    assert "sleeper-example-stashes-late" not in names


def test_a_schedule_that_missed_its_time_raises_an_alarm(platforms: Synthesis) -> None:
    alarm = platforms.find_named(ALARM, "AlarmName", "sleeper-example-stashes-missed")
    assert alarm["MetricName"] == StashMetric.MISSED.value
    assert alarm["AlarmActions"]


def test_hours_without_a_stash_raise_an_alarm_if_chosen(with_dashboard: Synthesis) -> None:
    alarm = with_dashboard.find_named(ALARM, "AlarmName", "sleeper-example-stashes-late")
    assert (alarm["MetricName"], alarm["Statistic"]) == (StashMetric.COMPLETED.value, "Sum")
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (3600, 26)
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["TreatMissingData"] == "missing"
    assert alarm["InsufficientDataActions"] == alarm["AlarmActions"]


def test_an_instance_makes_no_stashes_by_default(example: Synthesis) -> None:
    assert "Stash" not in example.templates
    assert not any("stashes" in name for name in _buckets(example))
