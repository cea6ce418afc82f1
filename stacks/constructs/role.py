"""Roles of functions and tasks, with explicit statements and no managed policies."""

from collections.abc import Iterable

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.constructs.acknowledged import acknowledge_resource
from stacks.constructs.key import use_key
from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment

# Services that assume a role for an account: only for this account.
_SAY_FOR_WHOM = {"ecs-tasks", "elasticmapreduce", "emr-serverless", "pods.eks", "states"}


def make_role(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    *,
    service: str,
    permissions: Iterable[Permission],
    source_arn: str | None = None,
) -> iam.Role:
    """Returns a role for a service such as `lambda`, of one resource of it if that is given."""
    role = iam.Role(scope, construct_id, assumed_by=service_principal(service, source_arn))
    allow(role, deployment, permissions)
    return role


def service_principal(service: str, source_arn: str | None = None) -> iam.IPrincipal:
    """Returns a service, as far as it acts for this account, and for the resource if one is given.

    A service that does not tell for whom it acts is not limited.
    """
    principal = iam.ServicePrincipal(f"{service}.amazonaws.com")
    if service not in _SAY_FOR_WHOM:
        return principal
    source: dict[str, object] = {"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
    if source_arn is not None:
        source["ArnEquals"] = {"aws:SourceArn": source_arn}
    return iam.PrincipalWithConditions(principal, source)


def allow(
    grantee: iam.Role | iam.Policy, deployment: Deployment, permissions: Iterable[Permission]
) -> None:
    """Adds statements to a role, or to a policy of roles, with those for the instance's key."""
    permissions = list(permissions)
    for permission in [*permissions, *use_key(deployment, permissions)]:
        conditions = None
        if permission.condition is not None:
            operator, key, value = permission.condition
            conditions = {operator: {key: value}}
        statement = iam.PolicyStatement(
            actions=list(permission.actions),
            resources=list(permission.resources),
            conditions=conditions,
        )
        if isinstance(grantee, iam.Policy):
            grantee.add_statements(statement)
        else:
            grantee.add_to_policy(statement)
        for arn in permission.resources:
            if permission.why:
                acknowledge_resource(grantee, arn, permission.why)
