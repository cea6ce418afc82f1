"""Adapters: the function that sends due runs, their queue, and the tasks that run them."""

from collections.abc import Sequence

import aws_cdk as cdk

from sleeper.adapters.properties import (
    ADAPTER_PERIOD_MINUTES,
    ADAPTER_SECRETS,
    ADAPTER_SECURITY_GROUPS,
    ADAPTER_SUBNETS,
    ADAPTER_TASK_CPU,
    ADAPTER_TASK_MEMORY_MB,
    ADAPTER_TASK_SECURITY_GROUPS,
    ADAPTER_TASK_SUBNETS,
)
from sleeper.errors import InvalidRequestError
from sleeper.properties.bound_secrets import secret_names
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import BULK_IMPORT, TABLE_DATA
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.job_queue import JobQueue, make_job_queue
from stacks.constructs.permissions import (
    COMMITS,
    DATA,
    Permission,
    count,
    find_tables,
    objects_in,
    read_objects,
    read_secrets,
    read_sources,
    receive,
    record_jobs,
    run_task,
    see_job,
    send,
    write_objects,
)
from stacks.constructs.schedule import start_every
from stacks.constructs.state_permissions import commit, hold
from stacks.constructs.task import TaskKind, TaskSize, WorkerTask
from stacks.context import Network, StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack

_START = "start_adapters"
_EACH_ADAPTER = "an object for each adapter"


class AdapterStack(SystemStack):
    """A rule sends due runs every minute, and tasks run while the queue has messages.

    A task submits a run that Spark reads with the permissions of `spark`, and waits for its end.
    """

    @classmethod
    def reads_secrets(cls, deployment: Deployment) -> bool:
        return bool(deployment.get(ADAPTER_SECRETS))

    @classmethod
    def administer(cls, deployment: Deployment) -> Sequence[Permission]:
        return [
            *_read_adapters(deployment),
            _change_adapters(deployment),
            *_read_secrets(deployment),
        ]

    @classmethod
    def report(cls, deployment: Deployment) -> Sequence[Permission]:
        return _read_adapters(deployment)

    @classmethod
    def run_with_spark(cls, deployment: Deployment) -> Sequence[Permission]:
        """Spark stages rows in the bucket of imports."""
        bucket = deployment.bucket_arn(BULK_IMPORT)
        actions = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject")
        return [
            *_read_adapters(deployment),
            *_read_secrets(deployment),
            Permission(("s3:ListBucket",), [bucket]),
            Permission(actions, [f"{bucket}/staged/*"], "files for each run"),
        ]

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        runs = make_job_queue(self, deployment, "adapter")
        start = make_function(
            self,
            "Start",
            deployment,
            FunctionCode(_START),
            permissions=[
                *find_tables(deployment),
                record_jobs(deployment),
                see_job(deployment),
                *_read_adapters(deployment),
                _mark_due_adapters(deployment),
                count(deployment, "adapter"),
                send(deployment, "adapter"),
            ],
            size=Size(keeps_state=False),
        )
        start_every(start, deployment, deployment.get(ADAPTER_PERIOD_MINUTES), "start-adapters")
        _record_network(deployment, network)
        kind = _task_kind(deployment, runs, context.spark)
        WorkerTask(self, "Task", deployment=deployment, cluster=network.cluster, kind=kind)


def _task_kind(deployment: Deployment, runs: JobQueue, spark: Sequence[Permission]) -> TaskKind:
    return TaskKind(
        kind="adapter",
        size=TaskSize.read(deployment, ADAPTER_TASK_CPU, ADAPTER_TASK_MEMORY_MB),
        starts_every_minutes=deployment.get(ADAPTER_PERIOD_MINUTES),
        permissions=[
            *commit(deployment),
            *hold(deployment),
            *run_task(deployment),
            see_job(deployment),
            *read_sources(deployment),
            *_read_adapters(deployment),
            *_read_secrets(deployment),
            *spark,
            # Tables can be sources.
            read_objects(deployment, DATA),
            write_objects(deployment, DATA, COMMITS),
            receive(deployment, runs.declared),
            send(deployment, "commits"),
        ],
    )


def _record_network(deployment: Deployment, network: Network) -> None:
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
    deployment: Deployment, declaration: Property[tuple[str, ...]], values: Sequence[str]
) -> None:
    deployment.deployed[declaration.name] = cdk.Fn.join(",", list(values))


def _read_adapters(deployment: Deployment) -> list[Permission]:
    """Allows reading the definitions of adapters."""
    return [
        Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
        Permission(
            ("s3:GetObject",), objects_in(deployment, TABLE_DATA, "adapters/*"), _EACH_ADAPTER
        ),
    ]


def _mark_due_adapters(deployment: Deployment) -> Permission:
    """Allows recording the due time of an adapter's last run."""
    return Permission(
        ("s3:PutObject",), objects_in(deployment, TABLE_DATA, "adapters/*.due"), _EACH_ADAPTER
    )


def _change_adapters(deployment: Deployment) -> Permission:
    """Allows creating, changing and deleting definitions of adapters."""
    actions = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    return Permission(actions, objects_in(deployment, TABLE_DATA, "adapters/*"), _EACH_ADAPTER)


def _read_secrets(deployment: Deployment) -> list[Permission]:
    listed = deployment.get(ADAPTER_SECRETS)
    return read_secrets(deployment, secret_names(listed))
