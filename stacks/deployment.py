"""The deployment that every stack receives."""

from dataclasses import dataclass, field
from typing import TypeVar

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets

from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    DEPLOYED_QUEUES,
    DeployedBucket,
    DeployedQueue,
    DeployedTable,
    stack_name,
)
from sleeper.properties.instance import (
    BUCKET_NAMES_REGION,
    ID,
    OPTIONAL_STACKS,
    RETAIN_INFRA,
)
from sleeper.properties.values import InstanceProperties

T = TypeVar("T")

INSTANCE_TAG = "sleeper-instance"
"""The tag of lasting buckets and tables, by which `tools/adopt.py` knows them again."""
_ARN = f"arn:{cdk.Aws.PARTITION}"
_HERE = f"{cdk.Aws.REGION}:{cdk.Aws.ACCOUNT_ID}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The instance's properties, the code of its functions, and the names of its resources.

    `account` and `region` are texts, or what CloudFormation resolves to them. The schedules of a
    paused deployment are disabled, and the actions of alarms on them.

    Stacks add the addresses of their resources to `deployed`, those that other stacks of an app may
    use to `resources` (by the name of the property with the address), and the resources that they
    create to `functions` (by name), `schedules` (the minutes between the runs of functions, by
    their name after the prefix), `queues`, `alarms` (by name), `task_kinds`, `lasting_tables`,
    `sources` (the queues that start functions, each with how many it would start at once) ,
    `on_demand` (the ids of those that are polled only while they have messages, by queue) and
    `billed` (the sizes of functions and tasks, as in `sleeper.billed.parts`).
    """

    properties: InstanceProperties
    code: assets.Asset
    account: str = cdk.Aws.ACCOUNT_ID
    region: str = cdk.Aws.REGION
    is_paused: bool = False
    deployed: dict[str, str] = field(default_factory=dict)
    resources: dict[str, cdk.Resource] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    schedules: dict[str, int] = field(default_factory=dict)
    queues: list[DeployedQueue] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    task_kinds: list[str] = field(default_factory=list)
    lasting_tables: list[DeployedTable] = field(default_factory=list)
    sources: list[tuple[lambda_.EventSourceMapping, int]] = field(default_factory=list)
    on_demand: dict[str, str] = field(default_factory=dict)
    billed: list[str] = field(default_factory=list)

    def get(self, declaration: Property[T]) -> T:
        """Returns the property's value."""
        return self.properties.get(declaration)

    def has(self, stack: str) -> bool:
        """Returns whether the optional stack is deployed."""
        return stack in self.get(OPTIONAL_STACKS)

    def record(
        self,
        declaration: Property[str | None],
        address: str,
        resource: cdk.Resource | None = None,
    ) -> None:
        """Records the name or address of a resource in the instance's properties."""
        self.deployed[declaration.name] = address
        if resource is not None:
            self.resources[declaration.name] = resource

    def record_name(self, declaration: Property[tuple[str, ...]], name: str) -> None:
        """Adds the name of a resource to a list of the instance's properties."""
        former = self.deployed.get(declaration.name)
        self.deployed[declaration.name] = f"{former},{name}" if former else name

    @property
    def id(self) -> str:
        return self.get(ID)

    @property
    def removal_policy(self) -> cdk.RemovalPolicy:
        """The removal policy of lasting buckets and tables.

        A failed first deployment deletes them, because their names would block the next one.
        """
        keep = self.get(RETAIN_INFRA)
        kept = cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        return kept if keep else cdk.RemovalPolicy.DESTROY

    def name(self, name: str) -> str:
        """Returns the full name of a queue, function or rule."""
        return f"{stack_name(self.id)}-{name}"

    def bucket_name(self, bucket: DeployedBucket) -> str:
        has_region = self.get(BUCKET_NAMES_REGION)
        name = bucket.short_name if has_region else bucket.name
        return self.global_name(f"{name}-{self.account}")

    def global_name(self, name: str) -> str:
        """Returns the full name of what no other region of the account may have."""
        return self.name(f"{name}-{self.region}" if self.get(BUCKET_NAMES_REGION) else name)

    def table_name(self, table: DeployedTable) -> str:
        return f"sleeper-{self.id}-{table.name}"

    def arn(self, service: str, resource: str) -> str:
        """Returns the ARN of a resource in the stack's region and account."""
        return f"{_ARN}:{service}:{_HERE}:{resource}"

    def bucket_arn(self, bucket: DeployedBucket) -> str:
        return f"{_ARN}:s3:::{self.bucket_name(bucket)}"

    def table_arn(self, table: DeployedTable) -> str:
        return self.arn("dynamodb", f"table/{self.table_name(table)}")

    def queue_arn(self, name: str) -> str:
        return self.arn("sqs", self.name(name))


def queue_named(key: str) -> DeployedQueue:
    """Returns the declaration of the queue with that key."""
    return DEPLOYED_QUEUES[key]
