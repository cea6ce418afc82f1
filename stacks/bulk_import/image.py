"""The image that bulk imports run in."""

from aws_cdk import aws_ecr_assets as ecr
from constructs import Construct

from sleeper.properties.bulk_import import ARCHITECTURE, EMR_RELEASE
from stacks.constructs.image import image_asset
from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment

ON_EMR, ON_EKS = "emr-serverless", "emr-on-eks"
"""Whose images of Spark it is made from. Clusters take the first, which is of the same release."""


def bulk_import_image(
    scope: Construct, deployment: Deployment, made_from: str
) -> ecr.DockerImageAsset:
    """The image of `containers/bulk_import`."""
    return image_asset(
        scope,
        "bulk_import",
        deployment.get(ARCHITECTURE),
        {"PLATFORM": made_from, "RELEASE": deployment.get(EMR_RELEASE)},
    )


def pull(image: ecr.DockerImageAsset) -> list[Permission]:
    """What machines need that fetch it themselves."""
    return [
        Permission(("ecr:GetAuthorizationToken",), ("*",), "it takes no resource"),
        Permission(
            ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
            (image.repository.repository_arn,),
        ),
    ]
