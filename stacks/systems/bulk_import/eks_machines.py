"""The state machines of bulk imports on EKS, with their roles and their access to the cluster.

The machine of jobs may run Kubernetes jobs in one namespace. Only the machine of the setup is an
administrator of the cluster, and its role serves no other machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk.aws_eks import CfnAccessEntry, CfnCluster
from aws_cdk.aws_stepfunctions import CfnStateMachine
from constructs import Construct

from sleeper.jobs.spark_platform import KUBERNETES_NAMESPACE
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.function import make_log_group
from stacks.constructs.permissions import Permission
from stacks.constructs.role import make_role
from stacks.deployment import Deployment
from stacks.systems.bulk_import.eks_states import ClusterAddress, states_of_job, states_of_setup

# AmazonEKSAdminPolicy cannot bind roles (aws/containers-roadmap#2682) or create namespaces.
_ADMIN = "AmazonEKSClusterAdminPolicy"
_EDIT = "AmazonEKSEditPolicy"
# With it, Step Functions learns the end of an execution that another one started.
_END_RULE = "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"


@dataclass(frozen=True, slots=True)
class _Machine:
    """`prefix` begins the id of its log group. Without `namespace`, its access is to all."""

    construct_id: str
    prefix: str
    name: str
    access_policy: str
    namespace: str | None
    states: dict[str, Any]
    permissions: Sequence[Permission] = ()


def make_machines(scope: Construct, deployment: Deployment, cluster: CfnCluster) -> CfnStateMachine:
    """Returns the machine of jobs, which starts that of the setup."""
    address = ClusterAddress(
        cluster.ref, cluster.attr_endpoint, cluster.attr_certificate_authority_data
    )
    name = deployment.name("bulk-import-eks")
    setup_name = f"{name}-setup"
    setup = _Machine("Setup", "Setup", setup_name, _ADMIN, None, states_of_setup(address))
    job = _Machine(
        "Machine",
        "",
        name,
        _EDIT,
        KUBERNETES_NAMESPACE,
        states_of_job(address, _machine_arn(deployment, setup_name)),
        _run_setup(deployment, setup_name),
    )
    _make_machine(scope, deployment, cluster, setup)
    return _make_machine(scope, deployment, cluster, job)


def _make_machine(
    scope: Construct, deployment: Deployment, cluster: CfnCluster, machine: _Machine
) -> CfnStateMachine:
    construct_id = machine.construct_id
    role = _role(scope, deployment, machine)
    _give_access(scope, cluster, role, machine)
    log_name = f"/aws/vendedlogs/states/{machine.name}"
    group = make_log_group(scope, f"{machine.prefix}Log", deployment, log_name)
    made = CfnStateMachine(
        scope,
        construct_id,
        state_machine_name=machine.name,
        role_arn=role.role_arn,
        definition=machine.states,
        logging_configuration=CfnStateMachine.LoggingConfigurationProperty(
            level="ALL",
            include_execution_data=True,
            destinations=[
                CfnStateMachine.LogDestinationProperty(
                    cloud_watch_logs_log_group=CfnStateMachine.CloudWatchLogsLogGroupProperty(
                        log_group_arn=group.log_group_arn
                    )
                )
            ],
        ),
        tracing_configuration=CfnStateMachine.TracingConfigurationProperty(enabled=False),
    )
    acknowledge(made, "SF2", "its only long step is the job, which logs to CloudWatch")
    made.node.add_dependency(role)
    return made


def _role(scope: Construct, deployment: Deployment, machine: _Machine) -> iam.Role:
    permissions = [*machine.permissions, _deliver_logs()]
    return make_role(
        scope,
        f"{machine.construct_id}Role",
        deployment,
        service="states",
        permissions=permissions,
        source_arn=_machine_arn(deployment, machine.name),
    )


def _give_access(scope: Construct, cluster: CfnCluster, role: iam.Role, machine: _Machine) -> None:
    namespaces = None if machine.namespace is None else [machine.namespace]
    scope_type = "cluster" if namespaces is None else "namespace"
    arn = f"arn:{cdk.Aws.PARTITION}:eks::aws:cluster-access-policy/{machine.access_policy}"
    CfnAccessEntry(
        scope,
        f"{machine.construct_id}Access",
        cluster_name=cluster.ref,
        principal_arn=role.role_arn,
        access_policies=[
            CfnAccessEntry.AccessPolicyProperty(
                policy_arn=arn,
                access_scope=CfnAccessEntry.AccessScopeProperty(
                    type=scope_type, namespaces=namespaces
                ),
            )
        ],
    )


def _machine_arn(deployment: Deployment, name: str) -> str:
    return deployment.arn("states", f"stateMachine:{name}")


def _run_setup(deployment: Deployment, name: str) -> list[Permission]:
    """Allows starting the setup, and waiting for its end."""
    executions = deployment.arn("states", f"execution:{name}:*")
    return [
        Permission(("states:StartExecution",), [_machine_arn(deployment, name)]),
        Permission(
            ("states:DescribeExecution", "states:StopExecution"),
            [executions],
            "executions start at run time",
        ),
        Permission(
            ("events:DescribeRule", "events:PutRule", "events:PutTargets"),
            [deployment.arn("events", _END_RULE)],
        ),
    ]


def _deliver_logs() -> Permission:
    actions = (
        "logs:CreateLogDelivery",
        "logs:GetLogDelivery",
        "logs:UpdateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:DescribeResourcePolicies",
        "logs:DescribeLogGroups",
    )
    return Permission(actions, ("*",), "log deliveries do not support resources")
