"""Adapters: the function that sends due runs, their queue, and the tasks that run them."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.adapters.properties import (
    ADAPTER_PERIOD_MINUTES,
    ADAPTER_SECURITY_GROUPS,
    ADAPTER_SUBNETS,
    ADAPTER_TASK_CPU,
    ADAPTER_TASK_MEMORY_MB,
    ADAPTER_TASK_SECURITY_GROUPS,
    ADAPTER_TASK_SUBNETS,
)
from sleeper.errors import InvalidRequestError
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import TASK_DEFINITIONS
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import (
    COMMITS,
    DATA,
    Permission,
    commit,
    count,
    find_tables,
    mark_due_adapters,
    read_adapters,
    read_objects,
    read_secrets,
    read_sources,
    receive,
    send,
    track,
    write_objects,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.deployment import Deployment
from stacks.network import NetworkStack

_START = "start_adapters"


class AdapterStack(cdk.NestedStack):
    """A rule sends due runs every minute, and tasks run while the queue has messages.

    A task submits a run that Spark reads with the permissions `spark`, and waits for its end.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        network: NetworkStack,
        spark: Sequence[Permission],
    ) -> None:
        super().__init__(scope, construct_id)
        runs = make_job_queue(self, deployment, "adapter", alarms=alarms)
        minutes = deployment.get(ADAPTER_PERIOD_MINUTES)
        start = make_function(
            self,
            "Start",
            deployment,
            FunctionCode(_START),
            permissions=[
                *find_tables(deployment),
                *track(deployment),
                *read_adapters(deployment),
                mark_due_adapters(deployment),
                count(deployment, "adapter"),
                send(deployment, "adapter"),
            ],
            size=Size(keeps_state=False),
        )
        start_every(start, deployment, minutes, "start-adapters")
        _record_network(deployment, network)
        cluster: ecs.ICluster = network.cluster
        WorkerTask(
            self,
            "Task",
            deployment=deployment,
            cluster=cluster,
            kind=TaskKind(
                kind="adapter",
                place=TASK_DEFINITIONS["adapter"],
                size=TaskSize.read(deployment, ADAPTER_TASK_CPU, ADAPTER_TASK_MEMORY_MB),
                starts_every_minutes=minutes,
                permissions=[
                    *commit(deployment),
                    *track(deployment),
                    *read_sources(deployment),
                    *read_adapters(deployment),
                    *read_secrets(deployment),
                    *spark,
                    # Tables can be sources.
                    read_objects(deployment, DATA),
                    write_objects(deployment, DATA, COMMITS),
                    receive(deployment, runs.declared),
                    send(deployment, "commits"),
                ],
            ),
        )


def _record_network(deployment: Deployment, network: NetworkStack) -> None:
    """Records where tasks run, so that they can reach databases."""
    own, groups = deployment.get(ADAPTER_SUBNETS), deployment.get(ADAPTER_SECURITY_GROUPS)
    if own and not groups:
        raise InvalidRequestError(
            f"property {ADAPTER_SECURITY_GROUPS.name} is not set (expected security groups of the "
            f"network of {ADAPTER_SUBNETS.name})"
        )
    subnets = own or network.subnets
    groups = groups if own else (network.group.security_group_id, *groups)
    _record(deployment, ADAPTER_TASK_SUBNETS, subnets)
    _record(deployment, ADAPTER_TASK_SECURITY_GROUPS, groups)


def _record(
    deployment: Deployment, place: Property[tuple[str, ...]], values: Sequence[str]
) -> None:
    deployment.deployed[place.name] = cdk.Fn.join(",", list(values))
