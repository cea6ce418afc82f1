"""The stack of an instance, which composes the nested stacks.

It may be one of several stacks of a CDK app (`examples/cdk_app`), so it depends on nothing of the
app: it has its own name and feature flags, and checks nothing but its own resources.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, RootConstruct

from sleeper.admin.instance_folder import InstanceFolder
from sleeper.errors import InvalidRequestError
from sleeper.preflight.finding import refuse_errors
from sleeper.preflight.folder import check_folder
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    ADMIN_ROLE,
    CONFIG,
    CONFIG_BUCKET,
    DATA_BUCKET,
    DEPLOYED_QUEUES,
    INGEST_BY_QUEUE_ROLE,
    INGEST_DIRECT_ROLE,
    QUERY_ROLE,
    stack_name,
)
from sleeper.properties.deployment import LAMBDA_CPU_ARCHITECTURE
from sleeper.properties.instance import (
    ACCOUNT,
    ID,
    REGION,
    RESOURCE_TAGS,
    TERMINATION_PROTECTION,
    OptionalStack,
)
from sleeper.properties.values import InstanceProperties
from sleeper.systems import load
from stacks.alarms import AlarmsStack
from stacks.client_roles import ClientRolesStack
from stacks.committer import CommitterStack
from stacks.compaction import CompactionStack
from stacks.constructs.code import PLATFORMS, ROOT, make_code
from stacks.constructs.concurrency import limit_sources
from stacks.context import StackContext
from stacks.dashboard import DashboardStack
from stacks.deletion import DeletionStack
from stacks.deployment import Deployment
from stacks.garbage_collection import GarbageCollectionStack
from stacks.http_api import HttpApiStack
from stacks.ingest import IngestStack
from stacks.ingest_batcher import IngestBatcherStack
from stacks.metrics import TableMetricsStack
from stacks.network import NetworkStack
from stacks.properties import PropertiesStack
from stacks.query import QueryStack
from stacks.splitting import SplittingStack
from stacks.state_store import StateStoreStack
from stacks.storage import StorageStack
from stacks.system_stack import SystemStack, chosen_declarations, chosen_stacks
from stacks.table_index import TableIndexStack
from stacks.watch import WatchStack
from stacks.websocket import WebSocketQueryStack

R = TypeVar("R", bound=cdk.Resource)


class SleeperInstance(cdk.Stack):
    """The stack to deploy and destroy, with one nested stack per capability.

    Its name is `sleeper-<id>`. Other stacks of the app may use the resources that are attributes:
    the buckets of properties and of data, the topic of alarms, the network of tasks, and the roles
    of clients. What grants permissions on them belongs in the other stack.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        folder: InstanceFolder,
        code_platform: str = PLATFORMS[0],
        account: str | None = None,
        region: str | None = None,
        is_paused: bool = False,
        **settings: Any,
    ) -> None:
        """`settings` are further arguments of `cdk.Stack`. InvalidRequestError names a property.

        With `is_paused` the schedules are disabled. `account` and `region` make the names of
        buckets plain texts, by which CloudFormation can import them.
        """
        refuse_errors(check_folder(folder))
        properties = folder.properties
        name = stack_name(properties.get(ID))
        super().__init__(
            scope, construct_id, stack_name=name, **{**_settings(properties), **settings}
        )
        _keep_feature_flags(self)
        processor = properties.get(LAMBDA_CPU_ARCHITECTURE)
        code = make_code(self, code_platform, processor)
        deployment = Deployment(
            properties, code, account or cdk.Aws.ACCOUNT_ID, region or cdk.Aws.REGION, is_paused
        )
        self._deployment = deployment
        TableIndexStack(self, "TableIndex", deployment=deployment)
        storage = StorageStack(self, "Storage", deployment=deployment)
        self.alarms = alarms = AlarmsStack(self, "Alarms", deployment=deployment).topic
        self.network = network = NetworkStack(self, "Network", deployment=deployment).network
        log_stream = StateStoreStack(self, "StateStore", deployment=deployment).log_stream
        CommitterStack(self, "Committer", deployment=deployment)
        DeletionStack(self, "Deletion", deployment=deployment)
        self._add_ingest(deployment, network.cluster)
        self._add_care(deployment, network.cluster)
        websocket_id = self._add_queries(deployment, storage.emptier)
        context = StackContext(deployment, alarms, storage.emptier, network, log_stream)
        self._add_systems(context, starts_tasks=False)
        if deployment.has(OptionalStack.REST_API):
            HttpApiStack(self, "HttpApi", deployment=deployment)
        WatchStack(self, "Watch", deployment=deployment, alarms=alarms)
        # It names all queues, schedules and alarms.
        ClientRolesStack(self, "ClientRoles", deployment=deployment, websocket_id=websocket_id)
        self._complete(context, folder)
        for key, value in _tags(properties):
            cdk.Tags.of(self).add(key, value)

    @property
    def config_bucket(self) -> s3.Bucket:
        return self._resource(CONFIG_BUCKET, s3.Bucket)

    @property
    def data_bucket(self) -> s3.Bucket:
        return self._resource(DATA_BUCKET, s3.Bucket)

    @property
    def query_role(self) -> iam.Role:
        return self._resource(QUERY_ROLE, iam.Role)

    @property
    def ingest_by_queue_role(self) -> iam.Role:
        return self._resource(INGEST_BY_QUEUE_ROLE, iam.Role)

    @property
    def ingest_direct_role(self) -> iam.Role:
        return self._resource(INGEST_DIRECT_ROLE, iam.Role)

    @property
    def admin_role(self) -> iam.Role:
        return self._resource(ADMIN_ROLE, iam.Role)

    def queue(self, key: str) -> sqs.Queue:
        """Returns a queue, such as `ingest` (`sleeper.jobs.queue.QueueName`)."""
        keys = [each.key for each in self._deployment.queues]
        if key not in keys:
            expected = ", ".join(sorted(keys))
            raise InvalidRequestError(f"queue {key!r} is not deployed (expected {expected})")
        return self._resource(DEPLOYED_QUEUES[key].url, sqs.Queue)

    def _resource(self, declaration: Property[str | None], kind: type[R]) -> R:
        found = self._deployment.resources[declaration.name]
        assert isinstance(found, kind)
        return found

    def _add_ingest(self, deployment: Deployment, cluster: ecs.ICluster) -> None:
        queues = [stack.ingest_queue for stack in chosen_stacks(deployment) if stack.ingest_queue]
        if deployment.has(OptionalStack.INGEST):
            IngestStack(self, "Ingest", cluster=cluster, deployment=deployment)
            queues.insert(0, "ingest")
        if deployment.has(OptionalStack.INGEST_BATCHER):
            IngestBatcherStack(self, "IngestBatcher", job_queues=queues, deployment=deployment)

    def _add_care(self, deployment: Deployment, cluster: ecs.ICluster) -> None:
        if deployment.has(OptionalStack.COMPACTION):
            CompactionStack(self, "Compaction", cluster=cluster, deployment=deployment)
        if deployment.has(OptionalStack.SPLITTING):
            SplittingStack(self, "Splitting", deployment=deployment)
        if deployment.has(OptionalStack.GARBAGE_COLLECTION):
            GarbageCollectionStack(self, "GarbageCollection", deployment=deployment)
        if deployment.has(OptionalStack.TABLE_METRICS):
            TableMetricsStack(self, "Metrics", deployment=deployment)

    def _add_queries(self, deployment: Deployment, emptier: lambda_.IFunction) -> str | None:
        """Returns the id of the API of the WebSocket, if it is deployed."""
        senders: list[lambda_.Function] = []
        if deployment.has(OptionalStack.QUERY):
            senders = QueryStack(self, "Query", emptier=emptier, deployment=deployment).functions
        if not deployment.has(OptionalStack.WEB_SOCKET_QUERY):
            return None
        return WebSocketQueryStack(
            self, "WebSocketQuery", deployment=deployment, senders=senders
        ).api_id

    def _add_systems(self, context: StackContext, *, starts_tasks: bool) -> list[SystemStack]:
        """Returns the added stacks of systems that do, or do not, start tasks."""
        stacks: list[SystemStack] = []
        for declared in chosen_declarations(context.deployment):
            if load(declared.source).starts_tasks is starts_tasks:
                stack = load(declared.source)(self, declared.name, context)
                # As for the general buckets, see `_complete`.
                stack.node.add_dependency(*(each for each in stacks if each.buckets))
                stacks.append(stack)
        return stacks

    def _complete(self, context: StackContext, folder: InstanceFolder) -> None:
        """Adds what names the resources of all other stacks, and what reads the properties."""
        deployment = context.deployment
        others = [child for child in self.node.children if isinstance(child, cdk.NestedStack)]
        properties = PropertiesStack(
            self, "Properties", deployment=deployment, tables=folder.tables
        )
        properties.node.add_dependency(*others)
        (storage,) = (child for child in others if isinstance(child, StorageStack))
        for other in others:
            if other is not storage:
                # Whoever writes to a bucket ends before the bucket is emptied and deleted.
                other.node.add_dependency(storage)
        for stack in self._add_systems(context, starts_tasks=True):
            stack.node.add_dependency(properties)
        limit_sources(deployment)
        if deployment.has(OptionalStack.DASHBOARD):
            dashboard = DashboardStack(self, "Dashboard", deployment=deployment)
            cdk.CfnOutput(self, "DashboardName", value=dashboard.name)
        cdk.CfnOutput(self, "Instance", value=f"aws:{deployment.id}")
        cdk.CfnOutput(self, "ConfigBucket", value=deployment.bucket_name(CONFIG))


def _settings(properties: InstanceProperties) -> dict[str, Any]:
    """Returns arguments of the stack, which the app may replace."""
    return {
        "description": f"The Sleeper instance {properties.get(ID)}",
        "termination_protection": properties.get(TERMINATION_PROTECTION),
        "env": cdk.Environment(account=properties.get(ACCOUNT), region=properties.get(REGION)),
    }


def _keep_feature_flags(stack: cdk.Stack) -> None:
    """Gives the stack its own feature flags of the CDK, so that those of the app change nothing."""
    defaults = cdk.FeatureFlags.of(RootConstruct())
    for name, value in stack.node.get_all_context().items():
        if name.startswith("@aws-cdk/") and isinstance(value, bool):
            stack.node.set_context(name, defaults.is_enabled(name))
    for name, value in json.loads((ROOT / "cdk.json").read_text())["context"].items():
        stack.node.set_context(name, value)


def _tags(properties: InstanceProperties) -> Sequence[tuple[str, str]]:
    return properties.get(RESOURCE_TAGS)
