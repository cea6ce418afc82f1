"""Bulk import on EKS: a cluster in Auto Mode and state machines."""

from aws_cdk import aws_iam as iam
from aws_cdk.aws_eks import CfnCluster, CfnPodIdentityAssociation
from constructs import Construct

from sleeper.bulk_import.images import eks_image
from sleeper.jobs.spark_platform import (
    KUBERNETES_NAMESPACE,
    KUBERNETES_SERVICE_ACCOUNT,
    PlatformName,
)
from sleeper.properties.deployed import EKS_IMAGE, EKS_STATE_MACHINE
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.function import make_log_group
from stacks.constructs.image import make_image
from stacks.constructs.permissions import Permission
from stacks.constructs.role import make_role, service_principal
from stacks.constructs.stopped import Stopped, stop_before_deletion
from stacks.context import Network, StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack
from stacks.systems.bulk_import.eks_machines import make_machines
from stacks.systems.bulk_import.permissions import import_in_bulk
from stacks.systems.bulk_import.starting import start_jobs

_CLUSTER_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSComputePolicy",
    "AmazonEKSBlockStoragePolicy",
    "AmazonEKSLoadBalancingPolicy",
    "AmazonEKSNetworkingPolicy",
)
_NODE_POLICIES = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
_POOLS = ["general-purpose"]
_LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")


class EksStack(SystemStack):
    """The control plane has a cost while no job runs; the nodes have none."""

    ingest_queue = "bulk_import_eks"
    needs_endpoints = True

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        image = make_image(self, deployment, eks_image(deployment.properties))
        cluster = self._cluster(deployment, network)
        self._give_pods_a_role(deployment, cluster)
        machine = make_machines(self, deployment, cluster)
        deployment.record(EKS_IMAGE, image.uri)
        deployment.record(EKS_STATE_MACHINE, machine.attr_arn)
        name = deployment.name("bulk-import-eks")
        executions = deployment.arn("states", f"execution:{name}:*")
        # CloudFormation would wait for the end of imports. Without their execution, the pods of an
        # import end with the nodes, which end with the cluster.
        stopped = Stopped(
            "eks-imports",
            {"StateMachine": machine.attr_arn},
            [
                Permission(("states:ListExecutions",), [machine.attr_arn]),
                Permission(("states:StopExecution",), [executions], "executions start at run time"),
            ],
        )
        start = start_jobs(
            self,
            deployment,
            PlatformName.EKS,
            submit=[Permission(("states:StartExecution",), [machine.attr_arn])],
            ask=[
                Permission(
                    ("states:DescribeExecution",),
                    [executions],
                    "executions start at run time",
                )
            ],
        )
        # CloudFormation deletes the starter first, which would start another execution.
        start.node.add_dependency(stop_before_deletion(self, deployment, stopped, machine))

    def _cluster(self, deployment: Deployment, network: Network) -> CfnCluster:
        role = _managed_role(self, "ClusterRole", deployment, "eks", _CLUSTER_POLICIES)
        assert role.assume_role_policy is not None
        # Auto Mode tags the resources that it creates with this role.
        role.assume_role_policy.add_statements(
            iam.PolicyStatement(
                actions=["sts:TagSession"], principals=[iam.ServicePrincipal("eks.amazonaws.com")]
            )
        )
        nodes = _managed_role(self, "NodeRole", deployment, "ec2", _NODE_POLICIES)
        name = deployment.name("bulk-import")
        cluster = CfnCluster(
            self,
            "Cluster",
            name=name,
            role_arn=role.role_arn,
            access_config=CfnCluster.AccessConfigProperty(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            bootstrap_self_managed_addons=False,
            compute_config=CfnCluster.ComputeConfigProperty(
                enabled=True, node_pools=_POOLS, node_role_arn=nodes.role_arn
            ),
            kubernetes_network_config=CfnCluster.KubernetesNetworkConfigProperty(
                elastic_load_balancing=CfnCluster.ElasticLoadBalancingProperty(enabled=True)
            ),
            storage_config=CfnCluster.StorageConfigProperty(
                block_storage=CfnCluster.BlockStorageProperty(enabled=True)
            ),
            logging=CfnCluster.LoggingProperty(
                cluster_logging=CfnCluster.ClusterLoggingProperty(
                    enabled_types=[
                        CfnCluster.LoggingTypeConfigProperty(type=kind) for kind in _LOGS
                    ]
                )
            ),
            resources_vpc_config=CfnCluster.ResourcesVpcConfigProperty(
                subnet_ids=network.subnets,
                endpoint_private_access=True,
                endpoint_public_access=True,
            ),
        )
        # EKS would create the log group at its first log, without an expiry.
        log = make_log_group(self, "ClusterLog", deployment, f"/aws/eks/{name}/cluster")
        cluster.node.add_dependency(log)
        acknowledge(cluster, "EKS1", "Step Functions reaches only public endpoints, by IAM")
        return cluster

    def _give_pods_a_role(self, deployment: Deployment, cluster: CfnCluster) -> None:
        pods = make_role(
            self,
            "PodRole",
            deployment,
            service="pods.eks",
            permissions=import_in_bulk(deployment),
        )
        assert pods.assume_role_policy is not None
        pods.assume_role_policy.add_statements(
            iam.PolicyStatement(
                actions=["sts:TagSession"], principals=[service_principal("pods.eks")]
            )
        )
        CfnPodIdentityAssociation(
            self,
            "PodIdentity",
            cluster_name=cluster.ref,
            namespace=KUBERNETES_NAMESPACE,
            service_account=KUBERNETES_SERVICE_ACCOUNT,
            role_arn=pods.role_arn,
        )


def _managed_role(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    service: str,
    policies: tuple[str, ...],
) -> iam.Role:
    """Returns a role for EKS itself, as the AWS documentation requires it."""
    role = make_role(scope, construct_id, deployment, service=service, permissions=[])
    for name in policies:
        role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(name))
        arn = f"arn:<AWS::Partition>:iam::aws:policy/{name}"
        acknowledge(role, f"IAM4[Policy::{arn}]", "EKS requires this policy, which AWS maintains")
    return role
