"""The network of tasks: a VPC, a security group without ingress, and a cluster."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.errors import InvalidRequestError
from sleeper.properties.deployed import (
    NETWORK_VPC,
    TASK_CLUSTER,
    TASK_SECURITY_GROUP,
    TASK_SUBNETS,
)
from sleeper.properties.instance import NETWORK_ENDPOINTS, OPTIONAL_STACKS, SUBNETS, VPC
from sleeper.systems import load
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.endpoint_policy import (
    bound_images,
    bound_logs,
    bound_objects,
    bound_queues,
    bound_secrets,
    bound_tables,
)
from stacks.constructs.key import find_key
from stacks.constructs.permissions import Permission
from stacks.constructs.stopped import Stopped, stop_before_deletion
from stacks.context import Network
from stacks.deployment import Deployment
from stacks.system_stack import chosen_declarations, chosen_stacks

_ZONES = 2
_ADDRESSES = "10.0.0.0/16"


class NetworkStack(cdk.NestedStack):
    """The network of tasks. Lambdas run outside of it.

    Tasks either reach AWS services by interface endpoints, or have public addresses.
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        given = deployment.get(VPC)
        subnets = deployment.get(SUBNETS)
        has_public_addresses = not given and not deployment.get(NETWORK_ENDPOINTS)
        if given:
            vpc = _given_vpc(self, given, subnets)
        else:
            vpc = _made_vpc(self, deployment)
            chosen = vpc.public_subnets if has_public_addresses else vpc.isolated_subnets
            subnets = tuple(subnet.subnet_id for subnet in chosen)
            deployment.record(NETWORK_VPC, vpc.vpc_id)
            # So that another default of a later release is no change of this network.
            has_endpoints = str(not has_public_addresses).lower()
            deployment.deployed[NETWORK_ENDPOINTS.name] = has_endpoints
        # As in the first release, because another description replaces the group.
        group = ec2.SecurityGroup(
            self, "Tasks", vpc=vpc, description=f"tasks of {deployment.id}: nothing comes in"
        )
        for key, value in {tag for each in chosen_stacks(deployment) for tag in each.network_tags}:
            cdk.Tags.of(vpc).add(key, value)
        cluster = ecs.Cluster(
            self,
            "Cluster",
            cluster_name=deployment.name("tasks"),
            vpc=vpc,
            managed_storage_configuration=_encrypted_disks(self, deployment),
        )
        acknowledge(
            cluster,
            "ECS4",
            "tasks report to trackers, and Insights has a cost for an idle instance",
        )
        _stop_tasks(self, deployment, cluster, group, vpc)
        deployment.record(TASK_CLUSTER, cluster.cluster_name)
        deployment.record(TASK_SECURITY_GROUP, group.security_group_id)
        # Clients of gchq/sleeper do not start without the second and the third.
        deployment.deployed[TASK_SUBNETS.name] = cdk.Fn.join(",", list(subnets))
        deployment.deployed[SUBNETS.name] = cdk.Fn.join(",", list(subnets))
        deployment.deployed[VPC.name] = vpc.vpc_id
        self.network = Network(vpc, list(subnets), group, cluster, has_public_addresses)


def _encrypted_disks(
    scope: Construct, deployment: Deployment
) -> ecs.ManagedStorageConfiguration | None:
    """Returns the configuration of the disks of tasks, if the instance has a key."""
    key = find_key(scope, "Cluster", deployment)
    if key is None:
        return None
    return ecs.ManagedStorageConfiguration(fargate_ephemeral_storage_kms_key=key)


def _stop_tasks(
    scope: Construct,
    deployment: Deployment,
    cluster: ecs.ICluster,
    *used: ec2.ISecurityGroup | ec2.IVpc,
) -> None:
    """Stops all tasks before the cluster, their security group and their network are deleted."""
    tasks = deployment.arn("ecs", f"task/{deployment.name('tasks')}/*")
    in_cluster = ("ArnEquals", "ecs:cluster", cluster.cluster_arn)
    machines = Stopped(
        "tasks",
        {"Cluster": cluster.cluster_name},
        [
            Permission(
                ("ecs:ListTasks",), ["*"], "ecs:ListTasks does not support resources", in_cluster
            ),
            Permission(
                ("ecs:DescribeTasks", "ecs:StopTask"), [tasks], "tasks are created at run time"
            ),
        ],
    )
    stop_before_deletion(scope, deployment, machines, cluster, *used)


def _given_vpc(scope: Construct, vpc_id: str, subnets: tuple[str, ...]) -> ec2.IVpc:
    # The zones are unknown without a call to AWS, and are not needed.
    zones = [f"zone-{number}" for number in range(len(subnets))]
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=vpc_id,
        availability_zones=zones,
        isolated_subnet_ids=list(subnets),
    )


def _made_vpc(scope: Construct, deployment: Deployment) -> ec2.Vpc:
    """Returns a VPC without NAT gateways, whose tasks reach the AWS services."""
    has_endpoints = deployment.get(NETWORK_ENDPOINTS)
    isolated = _subnets("tasks", ec2.SubnetType.PRIVATE_ISOLATED)
    # The isolated ones stay, so that a deployment can change the property.
    public = [] if has_endpoints else [_subnets("public", ec2.SubnetType.PUBLIC)]
    vpc = ec2.Vpc(
        scope,
        "Vpc",
        vpc_name=deployment.name("vpc"),
        ip_addresses=ec2.IpAddresses.cidr(_ADDRESSES),
        max_azs=_ZONES,
        nat_gateways=0,
        restrict_default_security_group=False,
        subnet_configuration=[isolated, *public],
    )
    objects = vpc.add_gateway_endpoint("Objects", service=ec2.GatewayVpcEndpointAwsService.S3)
    items = vpc.add_gateway_endpoint("Items", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
    bound_objects(objects)
    bound_tables(items, deployment)
    acknowledge(vpc, "VPC7", "the network has no ingress and reaches only AWS services")
    if has_endpoints:
        _add_endpoints(scope, vpc, deployment)
    else:
        _check_platforms(deployment)
    return vpc


def _subnets(name: str, kind: ec2.SubnetType) -> ec2.SubnetConfiguration:
    public = {"map_public_ip_on_launch": False} if kind is ec2.SubnetType.PUBLIC else {}
    return ec2.SubnetConfiguration(name=name, subnet_type=kind, cidr_mask=20, **public)


def _check_platforms(deployment: Deployment) -> None:
    for declared in chosen_declarations(deployment):
        if load(declared.source).needs_endpoints:
            raise InvalidRequestError(
                f"property {NETWORK_ENDPOINTS.name} is false, but {declared.option} needs the "
                f"endpoints (expected true, {VPC.name}, or {OPTIONAL_STACKS.name} without it)"
            )


def _add_endpoints(scope: Construct, vpc: ec2.Vpc, deployment: Deployment) -> None:
    group = ec2.SecurityGroup(
        scope,
        "Endpoints",
        vpc=vpc,
        description="endpoints of AWS services",
        allow_all_outbound=False,
    )
    group.add_ingress_rule(ec2.Peer.ipv4(_ADDRESSES), ec2.Port.tcp(443), "tasks")

    def add(name: str, service: ec2.InterfaceVpcEndpointAwsService) -> ec2.InterfaceVpcEndpoint:
        return vpc.add_interface_endpoint(
            name, service=service, security_groups=[group], open=False
        )

    bound_images(add("EcrApi", ec2.InterfaceVpcEndpointAwsService.ECR))
    bound_images(add("EcrImages", ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER))
    bound_logs(add("Logs", ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS))
    if any(stack.reads_secrets(deployment) for stack in chosen_stacks(deployment)):
        bound_secrets(add("Secrets", ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER))
    bound_queues(add("Queues", ec2.InterfaceVpcEndpointAwsService.SQS), deployment)
