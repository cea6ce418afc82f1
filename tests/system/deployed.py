"""Deploys the synthesised templates to an emulator of AWS, as `cdk deploy` does to AWS.

    with deployed(client, folder / "instance.properties", work) as instance:
        instance.outputs["ConfigBucket"]

What an emulator without Docker cannot do: functions from images and tasks. Both stand in the
templates with their environments and roles, for a test that runs what the image runs as a process
of its own. A type of resource that the emulator does not know is left out of the template, and
what refers to it gets the attributes that are given here.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import WaiterError

from sleeper.properties.instance import DEFAULT_STACKS, OPTIONAL_STACKS, OptionalStack
from tests.servers.ministack import ACCOUNT, REGION

Client = Callable[[str], Any]

_BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
_BOOTSTRAP = "21"
_POLL_SECONDS, _POLLS_MAX = 1, 300
SERVERLESS_ARN = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/00stand1n"
"""The application that stands for the instance's own on EMR Serverless."""
_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "AWS::EMRServerless::Application": {
        "ApplicationId": SERVERLESS_ARN.rpartition("/")[2],
        "Arn": SERVERLESS_ARN,
    }
}


@dataclass(frozen=True)
class DeployedInstance:
    """An instance whose stack is complete."""

    stack_name: str
    outputs: Mapping[str, str]
    client: Client

    def stacks(self) -> dict[str, list[dict[str, Any]]]:
        """The resources of each stack, nested ones too, by the stack's name."""
        found = {}
        waiting = [self.stack_name]
        while waiting:
            name = waiting.pop()
            listed = self.client("cloudformation").describe_stack_resources(StackName=name)
            found[name] = listed["StackResources"]
            waiting += [
                resource["PhysicalResourceId"]
                for resource in found[name]
                if resource["ResourceType"] == "AWS::CloudFormation::Stack"
            ]
        return found

    def function_environment(self, name: str) -> dict[str, str]:
        """Returns the environment of a function."""
        told = self.client("lambda").get_function_configuration(FunctionName=name)
        return dict(told["Environment"]["Variables"])

    def tell_function(self, name: str, variables: Mapping[str, str]) -> None:
        """Adds variables to the environment of a function."""
        told = {**self.function_environment(name), **variables}
        self.client("lambda").update_function_configuration(
            FunctionName=name, Environment={"Variables": told}
        )

    def role_of_function(self, name: str) -> str:
        """Returns the ARN of the role of a function."""
        return str(self.client("lambda").get_function_configuration(FunctionName=name)["Role"])

    def task_environment(self, family: str) -> dict[str, str]:
        """Returns the environment of the tasks of a definition."""
        told = self.client("ecs").describe_task_definition(taskDefinition=family)
        (container,) = told["taskDefinition"]["containerDefinitions"]
        return {each["name"]: each["value"] for each in container["environment"]}


def define_table(
    folder: Path, name: str, schema: Mapping[str, Any], properties: str, *splits: str
) -> None:
    """Adds a table to a folder of properties."""
    place = folder / "tables" / name
    place.mkdir(parents=True)
    (place / "schema.json").write_text(json.dumps(schema))
    (place / "table.properties").write_text(properties)
    (place / "splits.txt").write_text("".join(f"{each}\n" for each in splits))


def stopwatch() -> Callable[[str], None]:
    """Prints how long each step took."""
    last = time.monotonic()

    def step(name: str) -> None:
        nonlocal last
        now = time.monotonic()
        print(f"{name}: {now - last:.1f} s", flush=True)
        last = now

    return step


def synthesise(instance_file: Path, output: Path, **context: str) -> Path:
    """Writes the templates and assets of a folder of properties; answers with the folder.

    Within one process the CDK makes an asset once: templates that change go to the same folder.
    """
    # Loading the CDK takes seconds, which tests that do not deploy need not wait for.
    from app import make_app

    given = {
        **json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"],
        "instance": str(_with_dashboard(instance_file, output.with_name(f"{output.name}-of"))),
        **context,
    }
    make_app(given, str(output)).synth()
    return output


def _with_dashboard(instance_file: Path, folder: Path) -> Path:
    """A copy of the folder. One that does not choose its parts has the dashboard besides."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(instance_file.parent, folder)
    copy = folder / instance_file.name
    if OPTIONAL_STACKS.name not in copy.read_text():
        parts = (*DEFAULT_STACKS, OptionalStack.DASHBOARD)
        with copy.open("a") as file:
            file.write(f"\n{OPTIONAL_STACKS.name}={','.join(parts)}\n")
    return copy


@contextmanager
def deployed(
    client: Client, instance_file: Path, output: Path, **context: str
) -> Iterator[DeployedInstance]:
    """Synthesises, deploys, and destroys at the end. RuntimeError if it cannot be deployed."""
    instance = deploy(client, synthesise(instance_file, output, **context))
    try:
        yield instance
    finally:
        destroy(instance)


def deploy(client: Client, output: Path, *, adopts: bool = False) -> DeployedInstance:
    """Creates or updates the stack of a folder of templates. Imports what exists if it `adopts`."""
    _bootstrap(client)
    (template,) = (p for p in output.glob("*.template.json") if ".nested." not in p.name)
    name = template.name.removesuffix(".template.json")
    where = _upload(client, output, output / f"{name}.assets.json")
    formation = client("cloudformation")
    do, waiter = formation.create_stack, "stack_create_complete"
    if _exists(formation, name):
        do, waiter = formation.update_stack, "stack_update_complete"
    if adopts:
        kind = "CREATE" if waiter == "stack_create_complete" else "UPDATE"
        do = partial(_execute_importing, formation, kind)
    do(StackName=name, TemplateURL=where[template.name], Capabilities=["CAPABILITY_NAMED_IAM"])
    try:
        config = {"Delay": _POLL_SECONDS, "MaxAttempts": _POLLS_MAX}
        formation.get_waiter(waiter).wait(StackName=name, WaiterConfig=config)
    except Exception as error:
        raise RuntimeError(f"{name} is not deployed: {_failures(formation, name)}") from error
    (stack,) = formation.describe_stacks(StackName=name)["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    return DeployedInstance(name, outputs, client)


def _execute_importing(formation: Any, kind: str, **template: Any) -> None:
    """Creates and executes a change set, as `cdk deploy --import-existing-resources` does."""
    names = {"StackName": template["StackName"], "ChangeSetName": "adopt"}
    options = {"ImportExistingResources": True, "IncludeNestedStacks": True}
    formation.create_change_set(**{**names, **template, **options}, ChangeSetType=kind)
    formation.get_waiter("change_set_create_complete").wait(**names)
    formation.execute_change_set(**names)


def destroy(instance: DeployedInstance) -> None:
    """Deletes the stack except for retained resources. RuntimeError if it cannot be deleted."""
    formation = instance.client("cloudformation")
    formation.delete_stack(StackName=instance.stack_name)
    config = {"Delay": _POLL_SECONDS, "MaxAttempts": _POLLS_MAX}
    waiter = formation.get_waiter("stack_delete_complete")
    try:
        waiter.wait(StackName=instance.stack_name, WaiterConfig=config)
    except WaiterError as error:
        reasons = _failures(formation, instance.stack_name)
        raise RuntimeError(f"{instance.stack_name} is not deleted: {reasons}") from error


def _bootstrap(client: Client) -> None:
    """Stores the version number that `cdk bootstrap` stores."""
    client("ssm").put_parameter(
        Name=_BOOTSTRAP_VERSION, Value=_BOOTSTRAP, Type="String", Overwrite=True
    )


def _upload(client: Client, output: Path, manifest: Path) -> dict[str, str]:
    """Uploads the files of a manifest; the address of each by its name. Images are left out."""
    here = client("sts")
    account = here.get_caller_identity()["Account"]
    region = here.meta.region_name
    s3 = client("s3")
    addresses = {}
    for asset in json.loads(manifest.read_text())["files"].values():
        source = output / asset["source"]["path"]
        if asset["source"]["packaging"] == "zip":
            source = Path(shutil.make_archive(str(source), "zip", source))
        elif ".template." in source.name:
            known = _without_unknown(json.loads(source.read_text()))
            source = source.with_suffix(".known.json")
            source.write_text(json.dumps(known))
        (place,) = asset["destinations"].values()
        bucket = place["bucketName"]
        for placeholder, value in (("AccountId", account), ("Region", region)):
            bucket = bucket.replace(f"${{AWS::{placeholder}}}", value)
        s3.create_bucket(Bucket=bucket)
        s3.upload_file(str(source), bucket, place["objectKey"])
        name = Path(asset["source"]["path"]).name
        addresses[name] = f"{s3.meta.endpoint_url}/{bucket}/{place['objectKey']}"
    return addresses


def _without_unknown(template: dict[str, Any]) -> dict[str, Any]:
    resources = template["Resources"]
    left_out = {
        name: _ATTRIBUTES[resource["Type"]]
        for name, resource in resources.items()
        if resource["Type"] in _ATTRIBUTES
    }
    kept = {
        name: each
        for name, each in resources.items()
        if name not in left_out and not _stops_an_application(each)
    }
    found: dict[str, Any] = _resolved({**template, "Resources": kept}, left_out)
    return found


def _stops_an_application(resource: dict[str, Any]) -> bool:
    return resource["Type"] == "Custom::SleeperStopped" and "Application" in resource["Properties"]


def _resolved(value: Any, left_out: Mapping[str, Mapping[str, str]]) -> Any:
    """Attributes of what is left out, where they are asked for."""
    if isinstance(value, list):
        return [_resolved(each, left_out) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in left_out:
            return left_out[name][attribute]
    return {key: _resolved(each, left_out) for key, each in value.items()}


def _exists(formation: Any, name: str) -> bool:
    listed = formation.list_stacks()["StackSummaries"]
    gone = "DELETE_COMPLETE"
    return any(s["StackName"] == name and s["StackStatus"] != gone for s in listed)


def _failures(formation: Any, name: str) -> str:
    told = formation.describe_stack_events(StackName=name)["StackEvents"]
    return "; ".join(
        f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}"
        for event in told
        if event["ResourceStatus"].endswith("FAILED") and event.get("ResourceStatusReason")
    )
