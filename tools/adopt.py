"""Checks which retained buckets and tables a deployment adopts: `python -m tools.adopt FOLDER`.

FOLDER has the synthesised templates. CloudFormation imports an existing resource by its name alone,
so each is checked first: it must belong to no other stack, and its tags must name the instance. The
names of adopted resources are printed. `make adopt` deploys after that. `python -m tools.adopt
--context` prints the account and region for `cdk`, which the names of buckets need as texts.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

from sleeper.instance import AWS_PREFIX
from stacks.deployment import INSTANCE_TAG

_STACK_TAG = "aws:cloudformation:stack-name"
_BUCKET, _TABLE = "AWS::S3::Bucket", "AWS::DynamoDB::Table"
_NAMES = {_BUCKET: "BucketName", _TABLE: "TableName"}
_MISSING = {"404", "NoSuchBucket", "NoSuchTagSet", "ResourceNotFoundException", "ValidationError"}

Client = Callable[[str], Any]
"""Makes the client of a service."""


@dataclass(frozen=True, slots=True)
class Retained:
    """A bucket or table that templates retain. CloudFormation resolves a name that is no text."""

    kind: str
    name: Any


class RefusedError(Exception):
    """A resource that has the name of one of the instance's, but is not the instance's own."""


def find_retained(folder: Path, instance: str) -> list[Retained]:
    """Returns the buckets and tables of an instance that the templates of a folder retain."""
    templates = (json.loads(file.read_text()) for file in sorted(folder.glob("*.template.json")))
    tag = {"Key": INSTANCE_TAG, "Value": instance}
    return [
        Retained(resource["Type"], resource["Properties"][_NAMES[resource["Type"]]])
        for template in templates
        for resource in template["Resources"].values()
        if resource["Type"] in _NAMES
        and tag in resource["Properties"].get("Tags", ())
        and resource.get("DeletionPolicy", "Delete").startswith("Retain")
    ]


def check_retained(client: Client, stack: str, instance: str, found: list[Retained]) -> list[str]:
    """Returns the names of those that exist and belong to no stack.

    RefusedError if one of them belongs to another stack, or is not of the instance.
    """
    adopted = []
    for each in found:
        if not isinstance(each.name, str):
            raise RefusedError(
                f"a name is not a text: {each.name} (expected -c account=NUMBER -c region=REGION)"
            )
        tags = _read_tags(client, each)
        if tags is None:
            continue
        owner = _owner(client, each.name)
        if owner is None:
            _check_tags(each.name, tags, stack, instance)
            adopted.append(each.name)
        elif not _is_of_stack(owner, stack):
            raise RefusedError(f"{each.name} belongs to the stack {owner} (expected {stack})")
    return adopted


def _read_tags(client: Client, resource: Retained) -> Mapping[str, str] | None:
    """Returns the tags, or None if the resource does not exist."""
    if resource.kind == _TABLE:
        tables = client("dynamodb")
        table = _unless_missing(lambda: tables.describe_table(TableName=resource.name))
        if table is None:
            return None
        return _pairs(tables.list_tags_of_resource(ResourceArn=table["Table"]["TableArn"])["Tags"])
    buckets = client("s3")
    if _unless_missing(lambda: buckets.head_bucket(Bucket=resource.name)) is None:
        return None
    tagging = _unless_missing(lambda: buckets.get_bucket_tagging(Bucket=resource.name))
    return _pairs(tagging["TagSet"] if tagging else [])


def _pairs(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}


def _owner(client: Client, name: str) -> str | None:
    """Returns the name of the stack that has a resource."""
    stacks = client("cloudformation")
    found = _unless_missing(lambda: stacks.describe_stack_resources(PhysicalResourceId=name))
    resources = found["StackResources"] if found else []
    # A deleted stack is still described, with what it retained.
    living = (each for each in resources if not each["ResourceStatus"].startswith("DELETE_"))
    return next((str(each["StackName"]) for each in living), None)


def _unless_missing(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except ClientError as error:
        if error.response["Error"]["Code"] not in _MISSING:
            raise
        return None


def _check_tags(name: str, tags: Mapping[str, str], stack: str, instance: str) -> None:
    """Refuses a resource of another instance. Those of old releases have only tags of the stack."""
    owner = tags.get(INSTANCE_TAG)
    if owner == instance or (owner is None and _is_of_stack(tags.get(_STACK_TAG, ""), stack)):
        return
    raise RefusedError(
        f"{name} exists, and its tags do not name the instance: {dict(tags)} "
        f"(expected {INSTANCE_TAG}={instance})"
    )


def _is_of_stack(name: str, stack: str) -> bool:
    """Returns whether it is the stack of the instance or one that is nested in it."""
    return re.fullmatch(rf"{re.escape(stack)}(-[A-Za-z]+NestedStack.*)?", name) is not None


def find_instances(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the name of each stack of an instance, and its id. An app may have other stacks."""
    artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"]
    for name, artifact in artifacts.items():
        if artifact["type"] != "aws:cloudformation:stack":
            continue
        described = artifact["properties"]
        template = json.loads((folder / described["templateFile"]).read_text())
        where = template.get("Outputs", {}).get("Instance", {}).get("Value")
        if isinstance(where, str) and where.startswith(AWS_PREFIX):
            yield described.get("stackName", name), where.removeprefix(AWS_PREFIX)


def main(arguments: list[str]) -> None:
    """Prints what is adopted, or exits with 1 and the reason against it."""
    if arguments == ["--context"]:
        client = boto3.client("sts")
        account = client.get_caller_identity()["Account"]
        print(f"-c account={account} -c region={client.meta.region_name}")
        return
    (folder,) = map(Path, arguments)
    try:
        for stack, instance in find_instances(folder):
            for name in check_retained(
                boto3.client, stack, instance, find_retained(folder, instance)
            ):
                print(f"adopting {name}")
    except RefusedError as error:
        sys.exit(f"nothing is deployed: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
