"""Machines that end before what they use is deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from constructs import Construct, IDependable

from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import Permission, read_stack_status
from stacks.deployment import Deployment

_LONGEST_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Stopped:
    """The machines that `sleeper.aws.stack_deletion` stops, with the permissions to do so."""

    name: str
    machines: Mapping[str, str]
    permissions: Sequence[Permission]


def stop_before_deletion(
    scope: Construct, deployment: Deployment, stopped: Stopped, *used: IDependable
) -> cdk.CustomResource:
    """Returns the resource whose deletion stops the machines, before all that they use.

    What starts machines must depend on it. The function belongs to the same stack, because a stack
    that is removed from an instance needs it until then.
    """
    function = make_function(
        scope,
        "Stop",
        deployment,
        FunctionCode("stop_machines"),
        permissions=[*stopped.permissions, read_stack_status(deployment)],
        name=f"stop-{stopped.name}",
        size=Size(timeout_seconds=_LONGEST_SECONDS, keeps_state=False),
    )
    resource = cdk.CustomResource(
        scope,
        "Stopped",
        resource_type="Custom::SleeperStopped",
        service_token=function.function_arn,
        service_timeout=cdk.Duration.seconds(_LONGEST_SECONDS + 60),
        properties=dict(stopped.machines),
    )
    resource.node.add_dependency(*used)
    return resource
