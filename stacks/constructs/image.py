"""Container images, which Docker builds at deployment."""

from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ecr_assets as ecr
from constructs import Construct

ROOT = Path(__file__).parents[2]
# Changes of other files do not change the images.
_CONTEXT = ("core/sleeper", "lambdas", "containers")


def image_asset(
    scope: Construct,
    name: str,
    processor: str,
    build_arguments: Mapping[str, str] | None = None,
) -> ecr.DockerImageAsset:
    """Returns the image of `containers/<name>/Dockerfile`, with the repository's code as context.

    All functions of a stack share one image per name.
    """
    construct_id = f"{name.title().replace('_', '')}Image"
    made = scope.node.try_find_child(construct_id)
    if isinstance(made, ecr.DockerImageAsset):
        return made
    arm = processor == "ARM64"
    return ecr.DockerImageAsset(
        scope,
        construct_id,
        directory=str(ROOT),
        file=f"containers/{name}/Dockerfile",
        platform=ecr.Platform.LINUX_ARM64 if arm else ecr.Platform.LINUX_AMD64,
        exclude=["*", *(f"!{kept}" for kept in _CONTEXT), "**/__pycache__", "**/*.egg-info"],
        ignore_mode=cdk.IgnoreMode.DOCKER,
        build_args=dict(build_arguments) if build_arguments else None,
        asset_name=f"sleeper-{name}",
    )
