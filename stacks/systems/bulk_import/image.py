"""Permissions to pull the image of bulk imports."""

from stacks.constructs.image import Image
from stacks.constructs.permissions import Permission


def pull(image: Image) -> list[Permission]:
    """Returns the permissions of machines that pull the image themselves."""
    return [
        Permission(("ecr:GetAuthorizationToken",), ("*",), "it takes no resource"),
        Permission(
            ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
            (image.repository.repository_arn,),
        ),
    ]
