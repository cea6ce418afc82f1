"""What the stack of a system receives from the general stacks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns

from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Network:
    """The network of tasks. `group` is their security group, and `subnets` has ids."""

    vpc: ec2.IVpc
    subnets: Sequence[str]
    group: ec2.SecurityGroup
    cluster: ecs.ICluster
    has_public_addresses: bool


@dataclass(frozen=True, slots=True)
class StackContext:
    """The resources of general stacks.

    `emptier` empties buckets before their deletion. `log_stream` is the ARN of the stream of logs,
    if a chosen stack follows it. The platform of Spark adds to `spark` the permissions to start
    runs there, for the stacks of later systems.
    """

    deployment: Deployment
    alarms: sns.ITopic
    emptier: lambda_.IFunction
    network: Network
    log_stream: str | None
    spark: list[Permission] = field(default_factory=list)
