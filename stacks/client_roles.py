"""Roles that clients of the instance can assume.

Existing clients read their ARNs from the instance's properties. IAM policies of the account control
who can assume a role. No role can delete data files; only the instance can. Rows can be deleted by
messages of the role of administration, and by transactions of the role of direct ingest: IAM cannot
limit the content of a log entry, so that role may commit any transaction to any table.
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    ADMIN_ROLE,
    DEPLOYED_TABLES,
    INGEST_BY_QUEUE_ROLE,
    INGEST_DIRECT_ROLE,
    QUERY_ROLE,
    SCHEDULE_ALARMS,
    SCHEDULE_RULES,
)
from sleeper.properties.instance import QUERY_RESULTS_SHARED, OptionalStack
from stacks.constructs.permissions import (
    BIRTHMARK,
    COMMITS,
    DATA,
    STATE,
    Permission,
    change_instance_properties,
    change_table_index,
    count_all,
    read_jobs,
    read_objects,
    read_queries,
    read_results,
    read_sources,
    read_table_index,
    redrive_dead_letters,
    run_task,
    see_waiting_files,
    send,
    upload_files,
    write_objects,
)
from stacks.constructs.role import allow
from stacks.constructs.state_permissions import commit, hold, read_state
from stacks.deployment import Deployment
from stacks.system_stack import chosen_stacks
from stacks.websocket import LIVE_STAGE

_INGEST_QUEUES = ("ingest", "ingest_batcher")


class ClientRolesStack(cdk.NestedStack):
    """Created after the stacks with queues and schedules, because the roles may use existing ones.

    `websocket_id` is the id of the API of the WebSocket.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        websocket_id: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        query = _query(deployment, websocket_id)
        results = _read_results(deployment)
        is_shared = deployment.get(QUERY_RESULTS_SHARED)
        by_queue = _ingest_by_queue(deployment)
        direct = _ingest_directly(deployment)
        self._add(deployment, "Query", QUERY_ROLE, [*query, *(results if is_shared else [])])
        self._add(deployment, "IngestByQueue", INGEST_BY_QUEUE_ROLE, by_queue)
        self._add(deployment, "IngestDirect", INGEST_DIRECT_ROLE, direct)
        self._add(
            deployment,
            "Admin",
            ADMIN_ROLE,
            [*query, *results, *by_queue, *direct, *_administer(deployment)],
        )

    def _add(
        self,
        deployment: Deployment,
        construct_id: str,
        declaration: Property[str | None],
        permissions: list[Permission],
    ) -> None:
        role = iam.Role(self, construct_id, assumed_by=iam.AccountRootPrincipal())
        allow(role, deployment, permissions)
        deployment.record(declaration, role.role_arn, role)


def _query(deployment: Deployment, websocket_id: str | None) -> list[Permission]:
    allowed = read_table_index(deployment)
    if deployment.has(OptionalStack.QUERY):
        allowed += [send(deployment, "query"), *read_queries(deployment)]
    if websocket_id is not None:
        connect = deployment.arn("execute-api", f"{websocket_id}/{LIVE_STAGE}/$connect")
        allowed.append(Permission(("execute-api:Invoke",), [connect]))
    return allowed


def _read_results(deployment: Deployment) -> list[Permission]:
    return read_results(deployment) if deployment.has(OptionalStack.QUERY) else []


def _ingest_by_queue(deployment: Deployment) -> list[Permission]:
    receiving = {*_INGEST_QUEUES, *(stack.ingest_queue for stack in chosen_stacks(deployment))}
    queues = [queue.key for queue in deployment.queues if queue.key in receiving]
    sends = [send(deployment, *queues)] if queues else []
    return [*read_table_index(deployment), upload_files(deployment), *sends]


def _ingest_directly(deployment: Deployment) -> list[Permission]:
    return [
        *read_table_index(deployment),
        *read_state(deployment),
        *commit(deployment),
        *hold(deployment),
        *run_task(deployment),
        *read_jobs(deployment),
        *read_sources(deployment),
        upload_files(deployment),
        write_objects(deployment, DATA, COMMITS),
        send(deployment, "commits"),
    ]


def _administer(deployment: Deployment) -> list[Permission]:
    has_batcher = deployment.has(OptionalStack.INGEST_BATCHER)
    return [
        *([see_waiting_files(deployment)] if has_batcher else []),
        *(each for stack in chosen_stacks(deployment) for each in stack.administer(deployment)),
        *change_instance_properties(deployment),
        *change_table_index(deployment),
        read_objects(deployment, DATA),
        write_objects(deployment, BIRTHMARK, STATE),
        send(deployment, *(queue.key for queue in deployment.queues)),
        count_all(deployment),
        redrive_dead_letters(deployment),
        *_pause(deployment),
        *_read_use(deployment),
    ]


def _read_use(deployment: Deployment) -> list[Permission]:
    """Allows what `sleeper report costs` reads beside other reports."""
    tables = [deployment.table_arn(table) for table in DEPLOYED_TABLES]
    return [
        Permission(("dynamodb:DescribeTable",), tables),
        Permission(
            ("cloudwatch:GetMetricData",), ["*"], "GetMetricData does not support resources"
        ),
    ]


def _pause(deployment: Deployment) -> list[Permission]:
    """Allows `sleeper pause` and `resume` to switch schedules, and the alarms on them."""
    rules, alarms = (
        deployment.deployed[each.name].split(",") for each in (SCHEDULE_RULES, SCHEDULE_ALARMS)
    )
    return [
        Permission(
            ("events:EnableRule", "events:DisableRule"),
            [deployment.arn("events", f"rule/{name}") for name in rules],
        ),
        Permission(
            ("cloudwatch:EnableAlarmActions", "cloudwatch:DisableAlarmActions"),
            [deployment.arn("cloudwatch", f"alarm:{name}") for name in alarms],
        ),
    ]
