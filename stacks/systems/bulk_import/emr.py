"""Bulk import on EMR: one cluster per job."""

from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.deployed import (
    EMR_IMAGE,
    EMR_INSTANCE_PROFILE,
    EMR_MAIN_FILE,
    EMR_SECURITY_CONFIGURATION,
    EMR_SECURITY_GROUP,
    EMR_SERVICE_ROLE,
    EMR_SERVICE_SECURITY_GROUP,
)
from stacks.constructs.permissions import Permission, pass_role
from stacks.constructs.stopped import Stopped, stop_before_deletion
from stacks.context import StackContext
from stacks.system_stack import SystemStack
from stacks.systems.bulk_import.emr_parts import EMR_TAG, EmrParts
from stacks.systems.bulk_import.starting import start_jobs


class EmrStack(SystemStack):
    """Roles and security groups of clusters, which the starter creates."""

    ingest_queue = "bulk_import_emr"
    needs_endpoints = True
    network_tags = ((EMR_TAG, "true"),)

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        parts = EmrParts(
            self, "Clusters", deployment=deployment, network=network, name="bulk-import-emr"
        )
        for declaration, address in (
            (EMR_IMAGE, parts.image.uri),
            (EMR_MAIN_FILE, parts.main_file_url),
            (EMR_SERVICE_ROLE, parts.service_role.role_name),
            (EMR_INSTANCE_PROFILE, parts.profile.ref),
            (EMR_SECURITY_CONFIGURATION, parts.security.ref),
            (EMR_SECURITY_GROUP, parts.nodes.security_group_id),
            (EMR_SERVICE_SECURITY_GROUP, parts.service.security_group_id),
        ):
            deployment.record(declaration, address)
        clusters = deployment.arn("elasticmapreduce", "cluster/*")
        tagged = ("StringEquals", f"aws:RequestTag/{EMR_TAG}", "true")
        stopped = Stopped(
            "emr-clusters",
            {"SecurityGroup": parts.nodes.security_group_id},
            [
                Permission(("elasticmapreduce:ListClusters",), ["*"], "it takes no resource"),
                Permission(("elasticmapreduce:DescribeCluster",), [clusters], "clusters to come"),
                Permission(
                    ("elasticmapreduce:TerminateJobFlows",),
                    [clusters],
                    "clusters to come",
                    ("StringEquals", f"elasticmapreduce:ResourceTag/{EMR_TAG}", "true"),
                ),
            ],
        )
        start = start_jobs(
            self,
            deployment,
            PlatformName.EMR,
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
        # CloudFormation deletes the starter first, which would start another cluster.
        start.node.add_dependency(stop_before_deletion(self, deployment, stopped, parts))
