"""The roles, security groups, security configuration and driver of EMR clusters."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emr as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from sleeper.bulk_import.images import emr_image
from sleeper.properties.deployed import BULK_IMPORT
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.image import ROOT, make_image
from stacks.constructs.permissions import Permission, pass_role
from stacks.constructs.role import allow, make_role
from stacks.context import Network
from stacks.deployment import Deployment
from stacks.systems.bulk_import.image import pull
from stacks.systems.bulk_import.permissions import import_in_bulk

EMR_TAG = "for-use-with-amazon-emr-managed-policies"
"""EMR's managed policy allows only resources with this tag."""
_SERVICE_POLICY = "service-role/AmazonEMRServicePolicy_v2"
_MAIN_FILE = ROOT / "containers" / "bulk_import" / "main.py"
# Containers are one network hop further from the node's metadata than the node.
_METADATA = {"MinimumInstanceMetadataServiceVersion": 2, "HttpPutResponseHopLimit": 2}


class EmrParts(Construct):
    """`nodes_may` are permissions of nodes in addition to those of a bulk import.

    `main_file_url` is the driver's file in S3, because YARN reads no file of the image.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        network: Network,
        name: str,
        nodes_may: Sequence[Permission] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        self.image = make_image(self, deployment, emr_image(deployment.properties))
        logs = Permission(
            ("s3:PutObject",),
            [f"{deployment.bucket_arn(BULK_IMPORT)}/logs/*"],
            "an object for each log",
        )
        main_file = assets.Asset(self, "MainFile", path=str(_MAIN_FILE))
        self.main_file_url = main_file.s3_object_url
        self.node_role = make_role(
            self,
            "NodeRole",
            deployment,
            service="ec2",
            permissions=[
                *import_in_bulk(deployment),
                *pull(self.image),
                *_read(main_file),
                logs,
                *nodes_may,
            ],
        )
        self.profile = iam.CfnInstanceProfile(self, "Profile", roles=[self.node_role.role_name])
        self.service_role = self._service_role(deployment)
        self.nodes = self._group("Nodes", network, "nodes of bulk import clusters")
        # As in the first release, because another description replaces the group.
        self.service = self._group("Service", network, "the way of EMR to nodes of clusters")
        self.security = emr.CfnSecurityConfiguration(
            self,
            "Security",
            name=deployment.name(name),
            security_configuration={"InstanceMetadataServiceConfiguration": _METADATA},
        )

    def _service_role(self, deployment: Deployment) -> iam.Role:
        role = make_role(
            self, "ServiceRole", deployment, service="elasticmapreduce", permissions=[]
        )
        role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(_SERVICE_POLICY))
        arn = f"arn:<AWS::Partition>:iam::aws:policy/{_SERVICE_POLICY}"
        acknowledge(role, f"IAM4[Policy::{arn}]", "EMR requires this policy, which AWS maintains")
        allow(role, deployment, [pass_role(self.node_role, "ec2")])
        return role

    def _group(self, name: str, network: Network, description: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(self, name, vpc=network.vpc, description=description)
        cdk.Tags.of(group).add(EMR_TAG, "true")
        return group


def _read(file: assets.Asset) -> list[Permission]:
    bucket = file.bucket.bucket_arn
    return [
        Permission(("s3:GetObject",), [f"{bucket}/{file.s3_object_key}"]),
        # Hadoop's file systems of S3 may list a path before they read it.
        Permission(("s3:ListBucket",), [bucket]),
    ]
