"""The image of bulk imports."""

from aws_cdk import aws_ecr_assets as ecr
from constructs import Construct

from sleeper.properties.deployment import ARCHITECTURE, EMR_RELEASE
from stacks.constructs.image import image_asset
from stacks.constructs.permissions import Permission
from stacks.deployment import Deployment

ON_EMR, ON_EKS = "emr-serverless", "emr-on-eks"
"""Base images with Spark. Clusters use the first, which has the same release."""


def bulk_import_image(
    scope: Construct, deployment: Deployment, made_from: str
) -> ecr.DockerImageAsset:
    """Returns the image of `containers/bulk_import`."""
    return image_asset(
        scope,
        "bulk_import",
        deployment.get(ARCHITECTURE),
        {"PLATFORM": made_from, "RELEASE": deployment.get(EMR_RELEASE)},
    )


def pull(image: ecr.DockerImageAsset) -> list[Permission]:
    """Returns the permissions of machines that pull the image themselves."""
    return [
        Permission(("ecr:GetAuthorizationToken",), ("*",), "it takes no resource"),
        Permission(
            ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
            (image.repository.repository_arn,),
        ),
    ]
