"""The stack of adjunct stores."""

import json
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.metrics import AdjunctMetric
from sleeper.errors import InvalidRequestError
from tests.infra.creation_order import preceding
from tests.infra.synthesis import Synthesis, synthesise
from tests.infra.test_export_queues import ALARM, _allowed

SERVICE = "AWS::ECS::Service"
DEFINITION = "AWS::ECS::TaskDefinition"


def _definition(synthesis: Synthesis) -> dict[str, Any]:
    return synthesis.find_named(DEFINITION, "Family", "sleeper-example-adjunct-task")


def _containers(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return {each["Name"]: each for each in _definition(synthesis)["ContainerDefinitions"]}


def _environment(container: dict[str, Any]) -> dict[str, Any]:
    return {each["Name"]: each["Value"] for each in container["Environment"]}


def test_an_instance_has_no_service_by_default(example: Synthesis) -> None:
    assert "Adjunct" not in example.templates
    assert example.of_type(SERVICE) == {}


def test_the_service_is_private_and_takes_back_a_failed_deployment(platforms: Synthesis) -> None:
    (service,) = platforms.properties(SERVICE)
    assert service["ServiceName"] == "sleeper-example-adjunct"
    assert service["DesiredCount"] == 1
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert len(network["Subnets"]) == 2
    configuration = service["DeploymentConfiguration"]
    assert configuration["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}
    assert (configuration["MinimumHealthyPercent"], configuration["MaximumPercent"]) == (100, 200)
    assert not service["EnableExecuteCommand"]


def test_the_service_starts_after_what_its_tasks_read(platforms: Synthesis) -> None:
    """CloudFormation waits for healthy tasks, and would wait for ever for the properties."""
    template = platforms.templates["Instance"]
    nested = {
        name.partition("NestedStack")[0]: name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::CloudFormation::Stack"
    }
    earlier = preceding(template, nested["Adjunct"])
    assert set(nested.values()) - earlier == {nested["Adjunct"]}


def test_a_task_fills_the_stores_on_its_disk(platforms: Synthesis) -> None:
    definition = _definition(platforms)
    assert definition["EphemeralStorage"] == {"SizeInGiB": 50}
    assert definition["Volumes"] == [{"Name": "stores"}]
    (container,) = _containers(platforms).values()
    assert container["EntryPoint"] == ["python", "-m", "sleeper.adjunct.worker_task"]
    environment = _environment(container)
    assert environment["SLEEPER_ADJUNCT_PATH"] == "/stores"
    assert environment["SLEEPER_ADJUNCT_STORES"].startswith("accounts=table:accounts ")
    assert container["MountPoints"] == [
        {"ContainerPath": "/stores", "ReadOnly": False, "SourceVolume": "stores"}
    ]
    check = container["HealthCheck"]
    assert check["Command"] == ["CMD", *container["EntryPoint"], "check"]
    assert check["StartPeriod"] == 300
    assert "PortMappings" not in container


def test_the_container_of_the_user_reads_the_volume(with_dashboard: Synthesis) -> None:
    definition = with_dashboard.find_named(DEFINITION, "Family", "sleeper-example-adjunct-task")
    reader = {each["Name"]: each for each in definition["ContainerDefinitions"]}["reader"]
    assert reader["MountPoints"] == [
        {"ContainerPath": "/stores", "ReadOnly": False, "SourceVolume": "stores"}
    ]
    assert reader["DependsOn"] == [{"ContainerName": "fill", "Condition": "START"}]
    assert _environment(reader) == {
        "SLEEPER_ADJUNCT_PATH": "/stores",
        "SLEEPER_INSTANCE": "aws:Example",
    }


@pytest.mark.parametrize("version", [":1", "@sha256:0123", ""])
def test_the_image_of_the_user_may_be_pulled_from_its_repository(
    tmp_path: Path, version: str
) -> None:
    """The role has a generated name, so a user could not allow it before the deployment."""
    made = _make(
        tmp_path,
        "sleeper.adjunct.stores=accounts=table:accounts",
        "sleeper.adjunct.reader.image="
        f"123456789012.dkr.ecr.eu-west-2.amazonaws.com/team/enricher{version}",
    )
    allowed = _allowed(made, "Adjunct/DefinitionExecutionRole")
    for action in ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"):
        repositories = [each for each in allowed[action] if "container-assets" not in each]
        assert len(repositories) == 1
        assert ':ecr:eu-west-2:123456789012:repository/team/enricher"' in repositories[0]


def test_a_task_reads_its_inputs_and_nothing_else(platforms: Synthesis) -> None:
    allowed = _allowed(platforms, "Adjunct/Role")
    read = allowed["s3:GetObject"]
    assert any("/*/data/*" in resource for resource in read)
    assert any(':s3:::my-prices/daily/*"' in resource for resource in read)
    assert not any("adapters" in resource for resource in read)
    assert all("-holds" in resource for resource in allowed["dynamodb:PutItem"])
    for action in (
        "s3:PutObject",
        "s3:DeleteObject",
        "dynamodb:DeleteItem",
        "secretsmanager:GetSecretValue",
    ):
        assert action not in allowed
    assert not any(action.startswith(("kinesis:", "sqs:", "ecs:")) for action in allowed)


def _make(tmp_path: Path, *lines: str) -> Synthesis:
    file = tmp_path / "instance.properties"
    text = ("sleeper.id=example", "sleeper.optional.stacks=AdjunctStack", *lines)
    file.write_text("\n".join(text))
    return synthesise(tmp_path / "out", file)


def test_streams_are_read_by_name_in_a_given_network(tmp_path: Path) -> None:
    made = _make(
        tmp_path,
        "sleeper.vpc=vpc-1",
        "sleeper.subnets=subnet-1,subnet-2",
        "sleeper.adjunct.stores=a=kinesis:clicks b=dynamodb:users c=stash:s3://copies/nightly#shop",
        "sleeper.adjunct.secrets=kafka/reader",
        "sleeper.adjunct.tasks=2",
    )
    allowed = _allowed(made, "Adjunct/Role")
    (stream,) = allowed["kinesis:GetRecords"]
    assert stream.endswith(':stream/clicks"]]}')
    (table,) = allowed["dynamodb:GetRecords"]
    assert table.endswith(':table/users/stream/*"]]}')
    assert any(':s3:::copies/nightly*"' in each for each in allowed["s3:GetObject"])
    (secret,) = allowed["secretsmanager:GetSecretValue"]
    assert "kafka/reader-??????" in secret
    # No store is of a table.
    assert "dynamodb:PutItem" not in allowed
    assert not any("/data/" in each for each in allowed["s3:GetObject"])
    (service,) = made.properties(SERVICE)
    assert service["DesiredCount"] == 2
    subnets = service["NetworkConfiguration"]["AwsvpcConfiguration"]["Subnets"]
    assert subnets == ["subnet-1", "subnet-2"]


@pytest.mark.parametrize(
    ("stores", "problem"),
    [
        ("", r"sleeper\.adjunct\.stores is not set"),
        ("accounts", "expected NAME=INPUT"),
        ("a=table:x a=table:y", "store 'a' has two inputs: table:x and table:y"),
        ("a=kinesis:clicks", r"does not reach kinesis:clicks \(expected sleeper\.vpc"),
        ("a=files:/data", "expected on AWS: table:NAME"),
        ("a=other:x", "expected on AWS: table:NAME"),
    ],
)
def test_wrong_stores_are_refused_before_a_deployment(
    tmp_path: Path, stores: str, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        _make(tmp_path, f"sleeper.adjunct.stores={stores}")


def test_late_and_failing_stores_raise_alarms(
    platforms: Synthesis, with_dashboard: Synthesis
) -> None:
    late = platforms.find_named(ALARM, "AlarmName", "sleeper-example-adjunct-late")
    assert (late["MetricName"], late["Threshold"]) == (AdjunctMetric.AGE_SECONDS.value, 1800)
    assert late["TreatMissingData"] == "missing"
    assert late["InsufficientDataActions"] == late["AlarmActions"]
    failing = platforms.find_named(ALARM, "AlarmName", "sleeper-example-adjunct-problems")
    assert failing["MetricName"] == AdjunctMetric.PROBLEMS.value
    for alarm in (late, failing):
        assert alarm["AlarmActions"]
        assert {each["Name"]: each["Value"] for each in alarm["Dimensions"]} == {
            "instance": "example",
            "kind": "adjunct",
        }
    names = {each["AlarmName"] for each in with_dashboard.properties(ALARM)}
    assert "sleeper-example-adjunct-late" not in names
    assert "sleeper-example-adjunct-problems" in names


def test_the_dashboard_shows_stores(with_dashboard: Synthesis) -> None:
    (dashboard,) = with_dashboard.properties("AWS::CloudWatch::Dashboard")
    assert "AdjunctStoreAgeSeconds" in json.dumps(dashboard["DashboardBody"])
