"""Contract of task launchers, for ECS (moto) and the fake of the handlers' tests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from sleeper.aws.task_launcher import EcsTaskLauncher
from sleeper.errors import UnavailableError
from sleeper.jobs.tracker import Launch, TaskLauncher
from tests.handlers.fake_launcher import FakeLauncher

FAMILY = "sleeper-test-ingest"


@dataclass
class Tasks:
    """A launcher; `end` ends one of its tasks, as an idle task ends."""

    launcher: TaskLauncher
    end: Callable[[], object]


@pytest.fixture
def ecs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("ecs", region_name="eu-west-2")


@pytest.fixture
def ecs_launcher(ecs: Any) -> EcsTaskLauncher:
    ec2 = boto3.client("ec2", region_name="eu-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="tasks", Description="tasks", VpcId=vpc)["GroupId"]
    ecs.create_cluster(clusterName="tasks")
    for family in (FAMILY, "another"):
        response = ecs.register_task_definition(
            family=family,
            requiresCompatibilities=["FARGATE"],
            networkMode="awsvpc",
            cpu="1024",
            memory="2048",
            containerDefinitions=[{"name": "main", "image": "image", "memory": 2048}],
        )
        if family == FAMILY:
            definition = response["taskDefinition"]["taskDefinitionArn"]
    return EcsTaskLauncher(ecs, "tasks", definition, [subnet], [group])


@pytest.fixture(params=["fake", "ecs"])
def tasks(request: pytest.FixtureRequest) -> Tasks:
    if request.param == "fake":
        fake = FakeLauncher()
        return Tasks(fake, fake.end)
    launcher = request.getfixturevalue("ecs_launcher")
    client = request.getfixturevalue("ecs")

    def end() -> None:
        arns = client.list_tasks(cluster="tasks", family=FAMILY)["taskArns"]
        client.stop_task(cluster="tasks", task=arns[0])

    return Tasks(launcher, end)


def test_started_tasks_run_until_their_end(tasks: Tasks) -> None:
    assert tasks.launcher.running() == 0
    assert tasks.launcher.start(3) == Launch(3)
    assert tasks.launcher.start(0) == Launch(0)
    assert tasks.launcher.running() == 3
    tasks.end()
    assert tasks.launcher.running() == 2


def test_many_tasks_are_started_and_counted(tasks: Tasks) -> None:
    assert tasks.launcher.start(123) == Launch(123)
    assert tasks.launcher.running() == 123


def test_a_request_starts_at_most_ten_fargate_tasks_without_a_public_address(
    ecs: Any, ecs_launcher: EcsTaskLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []
    run_task = ecs.run_task
    monkeypatch.setattr(
        ecs, "run_task", lambda **request: requests.append(request) or run_task(**request)
    )
    ecs_launcher.start(23)
    assert [item["count"] for item in requests] == [10, 10, 3]
    assert {item["launchType"] for item in requests} == {"FARGATE"}
    network = requests[0]["networkConfiguration"]["awsvpcConfiguration"]
    assert network["assignPublicIp"] == "DISABLED"
    assert (len(network["subnets"]), len(network["securityGroups"])) == (1, 1)


def test_tasks_of_a_network_without_endpoints_have_public_addresses(
    ecs_launcher: EcsTaskLauncher,
) -> None:
    public = replace(ecs_launcher, has_public_addresses=True)
    network = public._request(1)["networkConfiguration"]["awsvpcConfiguration"]
    assert network["assignPublicIp"] == "ENABLED"


def test_tasks_of_other_families_are_not_counted(ecs: Any, ecs_launcher: EcsTaskLauncher) -> None:
    EcsTaskLauncher(
        ecs, "tasks", "another", ecs_launcher.subnets, ecs_launcher.security_groups
    ).start(2)
    assert ecs_launcher.running() == 0


ANSWERS: list[tuple[Any, str]] = [
    (
        {"tasks": [{}] * 4, "failures": [{"arn": "a", "reason": "RESOURCE:ENI"}] * 6},
        "RESOURCE:ENI",
    ),
    (
        ClientError(
            {"Error": {"Code": "ClientException", "Message": "Capacity is unavailable."}}, "RunTask"
        ),
        "Capacity is unavailable",
    ),
    (ClientError({"Error": {"Code": "ThrottlingException"}}, "RunTask"), "ThrottlingException"),
]


@pytest.mark.parametrize(("answer", "reason"), ANSWERS)
def test_a_partial_start_reports_started_tasks_and_failures(
    ecs: Any,
    ecs_launcher: EcsTaskLauncher,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    reason: str,
) -> None:
    answers = [{"tasks": [{}] * 10, "failures": []}, answer]

    def run_task(**_: Any) -> Any:
        arguments = answers.pop(0)
        if isinstance(arguments, Exception):
            raise arguments
        return arguments

    monkeypatch.setattr(ecs, "run_task", run_task)
    launch = ecs_launcher.start(50)
    assert launch.started == (14 if isinstance(answer, dict) else 10)
    assert len(launch.failures) == 1
    assert reason in launch.failures[0]
    assert answers == []


def test_a_missing_cluster_is_unavailable(ecs: Any) -> None:
    with pytest.raises(UnavailableError, match=r"tasks of ingest: .*[Cc]luster"):
        EcsTaskLauncher(ecs, "gone", "ingest", [], []).running()
