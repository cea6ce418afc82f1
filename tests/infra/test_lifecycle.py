"""The order in which a stack is deleted: what machines use is deleted after their end."""

import json
from pathlib import Path

import pytest

from tests.infra.creation_order import preceding
from tests.infra.synthesis import Resource, Synthesis, as_list, synthesise

STOPPED = "Custom::SleeperStopped"


def _only(template: Resource, kind: str) -> str:
    (result,) = (name for name, r in template["Resources"].items() if r["Type"] == kind)
    return str(result)


@pytest.mark.parametrize(
    ("concern", "used"),
    [
        ("Network", {"AWS::ECS::Cluster", "AWS::EC2::SecurityGroup", "AWS::EC2::Subnet"}),
        ("EmrServerless", {"AWS::EMRServerless::Application"}),
        ("Emr", {"AWS::EC2::SecurityGroup", "AWS::IAM::InstanceProfile"}),
        ("Eks", {"AWS::EKS::Cluster", "AWS::StepFunctions::StateMachine"}),
    ],
)
def test_machines_are_stopped_before_what_they_use_is_deleted(
    platforms: Synthesis, concern: str, used: set[str]
) -> None:
    """CloudFormation deletes in the reverse of the order of creation."""
    template = platforms.templates[concern]
    earlier = preceding(template, _only(template, STOPPED))
    assert used <= {template["Resources"][name]["Type"] for name in earlier}


@pytest.mark.parametrize("concern", ["EmrServerless", "Emr", "Eks"])
def test_starters_are_deleted_before_machines_are_stopped(
    platforms: Synthesis, concern: str
) -> None:
    template = platforms.templates[concern]
    starter = _only(template, "AWS::Lambda::EventSourceMapping")
    assert _only(template, STOPPED) in preceding(template, starter)


def test_tasks_are_stopped_after_their_starters_are_deleted(example: Synthesis) -> None:
    template = example.templates["Instance"]
    nested = [name for name in template["Resources"] if "NestedStack" in name]
    (network,) = (name for name in nested if name.startswith("Network"))
    for starter in ("IngestNested", "CompactionNested"):
        (name,) = (each for each in nested if each.startswith(starter))
        assert network in preceding(template, name)


def test_buckets_are_emptied_after_those_who_write_to_them_are_deleted(
    platforms: Synthesis,
) -> None:
    template = platforms.templates["Instance"]
    nested = [name for name in template["Resources"] if "NestedStack" in name]
    (storage,) = (name for name in nested if name.startswith("Storage"))
    (work,) = (name for name in nested if name.startswith("BulkImport"))
    for name in nested:
        earlier = preceding(template, name)
        assert name == storage or storage in earlier
        assert work in earlier or not name.startswith(("Emr", "PersistentEmr", "Eks"))


def test_a_function_stops_only_its_machines(platforms: Synthesis) -> None:
    allowed = {
        action: json.dumps(statement["Resource"])
        for where, statement in platforms.statements()
        if "/StopRole" in where and "Resource" in statement
        for action in as_list(statement["Action"])
    }
    assert "task/sleeper-example-tasks/*" in allowed["ecs:StopTask"]
    assert '["Application", "Arn"]' in allowed["emr-serverless:StopApplication"]
    assert "execution:sleeper-example-bulk-import-eks:*" in allowed["states:StopExecution"]
    assert "stack/sleeper-example-*/*" in allowed["cloudformation:DescribeStacks"]


@pytest.mark.parametrize("setting", ["", "sleeper.termination.protection=false\n"])
def test_a_stack_is_protected_from_termination_by_default(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "instance.properties"
    file.write_text(f"sleeper.id=example\nsleeper.optional.stacks=None\n{setting}")
    folder = synthesise(tmp_path / "out", file).folder
    artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"]
    (stack,) = (each for each in artifacts.values() if each["type"].endswith(":stack"))
    assert stack["properties"].get("terminationProtection", False) is not bool(setting)
