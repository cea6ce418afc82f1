"""The roles of synthesised templates: what their policies allow, and what runs with them.

The name of a role is that of its template and its logical id without the hash, such as
`Compaction/TaskRole`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.infra.synthesis import Resource, Synthesis, as_list
from tests.policies import Call, Statement, allows

ACCOUNT, REGION = "123456789012", "eu-west-2"
_PSEUDO = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}
_INSTANCES = re.compile(r"sleeper-(Example|Lake\.1|lake-1|lake\.1)-")
# The parameter of a nested stack that has the id of an event source of another one.
_SOURCE = re.compile(r"Source[0-9A-F]{8}Ref$")
PREFIX = "sleeper-example-"
SOURCE_ID = "a-source"
"""The id of every event source."""


@dataclass(slots=True)
class Role:
    """`policies` has the statements in each deployment. `users` are functions and task kinds."""

    name: str
    policies: list[list[Statement]] = field(default_factory=list)
    users: set[str] = field(default_factory=set)

    def may(self, call: Call) -> bool:
        """Returns whether the role is allowed the call in any of the deployments."""
        return any(allows(statements, call) for statements in self.policies)


def read_roles(*syntheses: Synthesis) -> dict[str, Role]:
    """Returns the roles of all deployments by name. Names of instances count as `example`."""
    roles: dict[str, Role] = {}
    for synthesis in syntheses:
        for concern, template in synthesis.templates.items():
            resources = template["Resources"]
            names = {
                logical_id: role_name(concern, logical_id)
                for logical_id, resource in resources.items()
                if resource["Type"] == "AWS::IAM::Role"
            }
            for logical_id, name in names.items():
                role = roles.setdefault(name, Role(name))
                role.users |= set(_users(resources, logical_id))
        _add_policies(synthesis, roles)
    return roles


def role_name(concern: str, logical_id: str) -> str:
    """Returns the name of the role of a logical id."""
    concern = re.sub(r"^sleeper[a-z0-9]+?1(?=[A-Z])", "", concern)
    return f"{concern}/{re.sub(r'[0-9A-F]{8}$', '', logical_id)}"


def _add_policies(synthesis: Synthesis, roles: dict[str, Role]) -> None:
    found: dict[str, list[Statement]] = {}
    for concern, template in synthesis.templates.items():
        for resource in template["Resources"].values():
            if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
                properties = resource["Properties"]
                statements = list(_statements(properties["PolicyDocument"]))
                for reference in properties["Roles"]:
                    name = _referred_role(concern, reference["Ref"], roles)
                    found.setdefault(name, []).extend(statements)
    for name, statements in found.items():
        roles[name].policies.append(statements)


def _referred_role(concern: str, logical_id: str, roles: dict[str, Role]) -> str:
    """Returns the name of a role, also of another template, whose parameter names it."""
    name = role_name(concern, logical_id)
    if name in roles:
        return name
    (other,) = (
        each
        for each in roles
        for stack, _, local in [each.partition("/")]
        if re.search(rf"Outputs\w*{stack}{local}[0-9A-F]{{8}}Ref$", logical_id)
    )
    return other


def _statements(document: Resource) -> Iterator[Statement]:
    for each in document["Statement"]:
        yield Statement(
            each["Effect"],
            as_list(each["Action"]),
            [literal(resource) for resource in as_list(each["Resource"])],
            {
                operator: {key: _literals(values) for key, values in wanted.items()}
                for operator, wanted in each.get("Condition", {}).items()
            },
        )


def _literals(values: Any) -> list[str]:
    return [literal(each) for each in as_list(values)]


def literal(value: Any) -> str:
    """Returns an ARN in the account and region of the tests; other references as JSON."""
    match value:
        case str():
            return _INSTANCES.sub(PREFIX, value)
        case {"Ref": str(name)} if name in _PSEUDO:
            return _PSEUDO[name]
        case {"Ref": str(name)} if _SOURCE.search(name):
            return SOURCE_ID
        case {"Fn::Join": [str(separator), list(parts)]}:
            return _INSTANCES.sub(PREFIX, separator.join(map(literal, parts)))
    return json.dumps(value)


def _users(resources: dict[str, Resource], role: str) -> Iterable[str]:
    reference = {"Fn::GetAtt": [role, "Arn"]}
    for resource in resources.values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Lambda::Function" and properties["Role"] == reference:
            yield literal(properties["FunctionName"]).removeprefix(PREFIX)
        if (
            resource["Type"] == "AWS::ECS::TaskDefinition"
            and properties["TaskRoleArn"] == reference
        ):
            yield literal(properties["Family"]).removeprefix(PREFIX)
