"""Acknowledged findings of cdk-nag, each with its reason."""

import re

import aws_cdk as cdk
from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Acknowledges a finding of the pack AwsSolutions on the construct and its children."""
    rule_id = f"AwsSolutions-{rule}"
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule_id, reason=reason))


def acknowledge_resource(construct: IConstruct, arn: str, reason: str) -> None:
    """Acknowledges a statement's resource that ends in a wildcard."""
    acknowledge(construct, f"IAM5[Resource::{_as_reported(construct, arn)}]", reason)


def _as_reported(construct: IConstruct, arn: str) -> str:
    """Returns the ARN as cdk-nag reports it, with references as `<name>`."""
    resolved = cdk.Stack.of(construct).resolve(arn)
    if isinstance(resolved, str):
        return resolved
    parts = resolved["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else f"<{_referred(part)}>" for part in parts)


def _referred(part: dict[str, object]) -> str:
    ((kind, value),) = part.items()
    if kind == "Ref":
        return str(value)
    return ".".join(value) if isinstance(value, list) else re.sub(r"\W", "", str(value))
