"""What CloudFormation must not replace or delete when an instance is upgraded.

The *identity* of a resource is its type and the properties whose change replaces it, as cfn-lint's
copy of CloudFormation's schemas tells. A resource is named `PART/LOGICAL ID`. In its properties,
references through parameters and outputs of nested stacks stand as the resources that they lead
to, so that only changes with an effect are changes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

OUTER = "Instance"
"""Stands for the stack in which the others are nested."""
KEPT = {
    "AWS::ApiGateway::RestApi": "clients have its address",
    "AWS::ApiGatewayV2::Api": "clients have its address",
    "AWS::CloudFormation::Stack": "has all resources of a part",
    "AWS::DynamoDB::Table": "holds data",
    "AWS::EC2::SecurityGroup": "machines and rules of other groups refer to it",
    "AWS::EC2::Subnet": "machines are in it",
    "AWS::EC2::VPC": "machines are in it",
    "AWS::ECS::Cluster": "runs tasks",
    "AWS::ECS::Service": "runs tasks",
    "AWS::EMR::Cluster": "runs jobs",
    "AWS::EMRServerless::Application": "runs jobs",
    "AWS::S3::Bucket": "holds data",
    "AWS::SNS::Topic": "has the subscriptions of users",
    "AWS::SQS::Queue": "holds messages",
    "AWS::StepFunctions::StateMachine": "runs jobs",
    "Custom::AWSCDK-EKS-Cluster": "runs jobs",
    "Custom::SleeperEmptiedBucket": "its deletion empties a bucket",
    "Custom::SleeperProperties": "has the properties of the last deployment",
    "Custom::SleeperTable": "has the definition of the last deployment",
}
"""The types of which no resource may be replaced or deleted, and why."""
_CLIENT_ROLES = "ClientRoles/"
"""The part whose roles are in the configuration of clients."""
_CONDITIONAL = {"AWS::ECS::Service", "AWS::DynamoDB::Table"}
"""Types whose conditionally replacing properties count too."""
_MORE = {
    # The schema omits them; the user guide says that a change replaces the cluster.
    "AWS::EMR::Cluster": ["Instances/Ec2SubnetIds", "Instances/MasterInstanceFleet"],
    "AWS::S3::Bucket": ["BucketName"],
}
_CUSTOM = ["ServiceToken"]
_REGION = "us-east-1"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Identity:
    """The type, the replacing properties, and the name, which no other resource may have."""

    type: str
    properties: Mapping[str, Any]
    name: str | None

    def as_json(self) -> dict[str, Any]:
        named = {} if self.name is None else {"name": self.name}
        replacing = {"properties": self.properties} if self.properties else {}
        return {"type": self.type, **named, **replacing}


def read_identities(file: Path) -> dict[str, Identity]:
    """Reads what `write_identities` wrote."""
    return {
        path: Identity(each["type"], each.get("properties", {}), each.get("name"))
        for path, each in json.loads(file.read_text()).items()
    }


def write_identities(identities: Mapping[str, Identity], file: Path) -> None:
    """Writes one resource per line, in the order of their paths."""
    lines = [
        f"{json.dumps(path)}: {json.dumps(each.as_json(), sort_keys=True)}"
        for path, each in sorted(identities.items())
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def find_identities(folder: Path) -> dict[str, Identity]:
    """Returns the identities of the named and the kept resources of synthesised templates."""
    (outer,) = (p for p in folder.glob("*.template.json") if ".nested." not in p.name)
    (manifest,) = folder.glob("*.assets.json")
    assets = json.loads(manifest.read_text())["files"]
    files = {name: folder / each["source"]["path"] for name, each in assets.items()}
    found = dict(_find(_Scope(OUTER, json.loads(outer.read_text()), {}, files)))
    return {path: each for path, each in found.items() if each.name or _is_kept(path, each.type)}


def find_changes(before: Mapping[str, Identity], after: Mapping[str, Identity]) -> dict[str, str]:
    """Returns why CloudFormation would delete, replace or refuse resources, by their paths."""
    changes: dict[str, str] = {}
    paths = {(each.type, each.name): path for path, each in after.items() if each.name}
    for path, old in before.items():
        new, moved = after.get(path), paths.get((old.type, old.name))
        if moved not in (None, path):
            changes[path] = f"its name is that of {moved}, which cannot be created beside it"
        elif not _is_kept(path, old.type):
            continue
        elif new is None or new.type != old.type:
            changes[path] = "deleted"
        elif changed := sorted(
            name
            for name in {**old.properties, **new.properties}
            if old.properties.get(name) != new.properties.get(name)
        ):
            changes[path] = f"replaced, because of {', '.join(changed)}"
    return changes


@dataclass(frozen=True, slots=True)
class _Scope:
    """A template, and the values of its parameters with paths. `files` has those of assets."""

    path: str
    template: Mapping[str, Any]
    parameters: Mapping[str, Any]
    files: Mapping[str, Path]

    def nested(self, logical_id: str) -> "_Scope":
        resource = self.template["Resources"][logical_id]
        (asset,) = set(_HASH.findall(json.dumps(resource["Properties"]["TemplateURL"])))
        template = json.loads(self.files[asset].read_text())
        given = resource["Properties"].get("Parameters", {})
        values = {name: self.resolve(value) for name, value in given.items()}
        return _Scope(logical_id.partition("NestedStack")[0], template, values, self.files)

    def resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Ref": str(name)}:
                return self.parameters.get(name, {"Ref": self._name(name)})
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                return self._attribute(name, attribute)
        return {key: self.resolve(item) for key, item in value.items()}

    def _attribute(self, name: str, attribute: str) -> Any:
        prefix, _, output = attribute.partition("Outputs.")
        if prefix or not output:
            return {"Fn::GetAtt": [self._name(name), attribute]}
        nested = self.nested(name)
        return nested.resolve(nested.template["Outputs"][output]["Value"])

    def _name(self, logical_id: str) -> str:
        return logical_id if logical_id.startswith("AWS::") else f"{self.path}/{logical_id}"


def _find(scope: _Scope) -> Iterator[tuple[str, Identity]]:
    for logical_id, resource in scope.template["Resources"].items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        values = {
            name: scope.resolve(value)
            for name in _replacing(kind)
            if (value := _member(properties, name)) is not None
        }
        name = _physical_name(kind)
        text = None if values.get(name or "") is None else json.dumps(values[name or ""])
        path = f"{scope.path}/{logical_id}"
        yield path, Identity(kind, values if _is_kept(path, kind) else {}, text)
        if kind == "AWS::CloudFormation::Stack":
            yield from _find(scope.nested(logical_id))


def _is_kept(path: str, kind: str) -> bool:
    return kind in KEPT or (kind == "AWS::IAM::Role" and path.startswith(_CLIENT_ROLES))


def _member(properties: Mapping[str, Any], path: str) -> Any:
    value: Any = properties
    for name in path.split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


@cache
def _replacing(kind: str) -> tuple[str, ...]:
    if kind.startswith("Custom::"):
        return tuple(_CUSTOM)
    schema = _schema(kind)
    names = list(schema.get("createOnlyProperties", ()))
    if kind in _CONDITIONAL:
        names += schema.get("conditionalCreateOnlyProperties", ())
    plain = [name.removeprefix("/properties/").partition("/*")[0] for name in names]
    return tuple(dict.fromkeys([*plain, *_MORE.get(kind, ())]))


@cache
def _physical_name(kind: str) -> str | None:
    """Returns the property with the name of a resource, which is unique in an account."""
    if kind.startswith("Custom::"):
        return None
    names = [n.removeprefix("/properties/") for n in _schema(kind).get("createOnlyProperties", ())]
    own = kind.rpartition("::")[2]
    return next((n for n in names if n in ("Name", f"{own}Name")), None)


def _schema(kind: str) -> Mapping[str, Any]:
    # It takes most of a second to load, which tests that compare nothing need not wait for.
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    found: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, kind).schema
    return found
