"""Bulk import on EMR: one cluster per job."""

import aws_cdk as cdk
from aws_cdk import aws_sns as sns
from constructs import Construct

from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.deployed import (
    EMR_IMAGE,
    EMR_INSTANCE_PROFILE,
    EMR_SECURITY_CONFIGURATION,
    EMR_SECURITY_GROUP,
    EMR_SERVICE_ROLE,
    EMR_SERVICE_SECURITY_GROUP,
)
from stacks.bulk_import.emr_parts import EMR_TAG, EmrParts
from stacks.bulk_import.starting import start_jobs
from stacks.constructs.permissions import Permission, pass_role
from stacks.deployment import Deployment
from stacks.network import NetworkStack


class EmrStack(cdk.NestedStack):
    """Roles and security groups of clusters, which the starter creates."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        alarms: sns.ITopic,
        network: NetworkStack,
    ) -> None:
        super().__init__(scope, construct_id)
        parts = EmrParts(
            self, "Clusters", deployment=deployment, network=network, name="bulk-import-emr"
        )
        for place, where in (
            (EMR_IMAGE, parts.image.image_uri),
            (EMR_SERVICE_ROLE, parts.service_role.role_name),
            (EMR_INSTANCE_PROFILE, parts.profile.ref),
            (EMR_SECURITY_CONFIGURATION, parts.security.ref),
            (EMR_SECURITY_GROUP, parts.nodes.security_group_id),
            (EMR_SERVICE_SECURITY_GROUP, parts.service.security_group_id),
        ):
            deployment.record(place, where)
        clusters = deployment.arn("elasticmapreduce", "cluster/*")
        tagged = ("StringEquals", f"aws:RequestTag/{EMR_TAG}", "true")
        start_jobs(
            self,
            deployment,
            PlatformName.EMR,
            alarms=alarms,
            submit=[
                Permission(("elasticmapreduce:RunJobFlow",), ["*"], "it takes no resource", tagged),
                Permission(("elasticmapreduce:ListClusters",), ["*"], "it takes no resource"),
                Permission(("elasticmapreduce:AddTags",), [clusters], "clusters to come", tagged),
                pass_role(parts.service_role, "elasticmapreduce"),
                pass_role(parts.node_role, "ec2"),
            ],
            ask=[
                Permission(
                    ("elasticmapreduce:DescribeCluster", "elasticmapreduce:ListSteps"),
                    [clusters],
                    "clusters to come",
                )
            ],
        )
