"""An instance as one of several stacks of an app, which has feature flags of its own."""

import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from sleeper.errors import InvalidRequestError
from stacks.instance import SleeperInstance
from tests.infra.synthesis import ROOT, Synthesis
from tools.adopt import find_instances, find_retained

APP = ROOT / "examples" / "cdk_app" / "app.py"
FLAGS = ROOT / "node_modules/aws-cdk/lib/init-templates/.recommended-feature-flags.json"


@dataclass(frozen=True)
class Embedded:
    """The templates of an app, and its instance."""

    folder: Path
    sleeper: SleeperInstance

    def stack(self, construct_id: str) -> dict[str, Any]:
        """Returns the template of a stack that is not nested."""
        template: dict[str, Any] = json.loads(
            (self.folder / f"{construct_id}.template.json").read_text()
        )
        return template


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    """The example, with the feature flags of an app that `cdk init` makes, and another one."""
    folder = tmp_path_factory.mktemp("embedded") / "out"
    flags = json.loads(FLAGS.read_text()) | {"@aws-cdk/aws-iam:minimizePolicies": False}
    app = runpy.run_path(str(APP))["make_app"](
        {**flags, "aws:cdk:bundling-stacks": []}, str(folder)
    )
    (sleeper,) = (each for each in app.node.children if isinstance(each, SleeperInstance))
    app.synth()
    return Embedded(folder, sleeper)


def test_the_resources_are_those_of_an_app_of_their_own(
    embedded: Embedded, example: Synthesis
) -> None:
    """So an instance can move from one app into another."""
    moved = Synthesis(embedded.folder).templates
    assert set(moved) == set(example.templates)
    for name, template in moved.items():
        own = example.templates[name]["Resources"]
        if name == "Instance":  # the outputs for other stacks change the names of templates
            assert set(template["Resources"]) == set(own)
        else:
            assert template["Resources"] == own, name


def test_the_stack_has_the_name_that_its_functions_know(embedded: Embedded) -> None:
    artifacts = json.loads((embedded.folder / "manifest.json").read_text())["artifacts"]
    described = artifacts["sleeper-example"]["properties"]
    assert embedded.sleeper.stack_name == "sleeper-example"
    assert described["terminationProtection"]
    assert not artifacts["Jobs"]["properties"]["terminationProtection"]
    # It is deployed before the stack that uses its resources.
    assert "sleeper-example" in artifacts["Jobs"]["dependencies"]


def test_other_stacks_use_its_resources(embedded: Embedded) -> None:
    policies = json.dumps(embedded.stack("Jobs")["Resources"])
    for action in ("sqs:SendMessage", "s3:GetObject*", "sts:AssumeRole"):
        assert action in policies
    for topic in ("IngestQueue", "TableData", "ClientRolesQuery", "Alarms"):
        assert topic in policies


def test_resources_are_typed_attributes(embedded: Embedded) -> None:
    sleeper = embedded.sleeper
    roles = (
        sleeper.query_role,
        sleeper.ingest_by_queue_role,
        sleeper.ingest_direct_role,
        sleeper.admin_role,
    )
    assert len({role.node.path for role in roles if isinstance(role, iam.Role)}) == 4
    buckets = (sleeper.config_bucket, sleeper.data_bucket)
    assert len({each.node.path for each in buckets if isinstance(each, s3.Bucket)}) == 2
    assert sleeper.network.vpc.node.path.endswith("/Network/Vpc")
    with pytest.raises(InvalidRequestError, match=r"'adapter' is not deployed \(expected "):
        sleeper.queue("adapter")


def test_only_the_instance_is_adopted(embedded: Embedded) -> None:
    ((stack, instance),) = find_instances(embedded.folder)
    assert (stack, instance) == ("sleeper-example", "example")
    assert len(find_retained(embedded.folder, "example")) > 5
    assert find_retained(embedded.folder, "exam") == []
