"""Roles of functions and tasks, with explicit statements and no managed policies."""

from collections.abc import Iterable

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.constructs.acknowledged import acknowledge_resource
from stacks.constructs.permissions import Permission

# Services that assume a role for an account: only for this account.
_SAY_FOR_WHOM = {"ecs-tasks", "states"}


def make_role(
    scope: Construct, construct_id: str, *, service: str, permissions: Iterable[Permission]
) -> iam.Role:
    """Returns a role for a service such as `lambda`."""
    principal: iam.IPrincipal = iam.ServicePrincipal(f"{service}.amazonaws.com")
    if service in _SAY_FOR_WHOM:
        here = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
        principal = iam.PrincipalWithConditions(principal, here)
    role = iam.Role(scope, construct_id, assumed_by=principal)
    allow(role, permissions)
    return role


def allow(role: iam.Role, permissions: Iterable[Permission]) -> None:
    """Adds statements to a role."""
    for permission in permissions:
        conditions = None
        if permission.condition is not None:
            operator, key, value = permission.condition
            conditions = {operator: {key: value}}
        role.add_to_policy(
            iam.PolicyStatement(
                actions=list(permission.actions),
                resources=list(permission.resources),
                conditions=conditions,
            )
        )
        for arn in permission.resources:
            if permission.why:
                acknowledge_resource(role, arn, permission.why)
