"""Container images, which Docker builds at deployment, or which were published before."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as assets
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sleeper.properties.images import NamedImage, Registry, release_tag
from stacks.deployment import Deployment

ROOT = Path(__file__).parents[2]
CONTEXT = ("core/sleeper", "lambdas", "containers")
"""The folders that Dockerfiles copy from. Changes of other files do not change the images."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a repository of ECR. `asset` is set if the deployment builds it."""

    repository: ecr.IRepository
    tag: str
    asset: assets.DockerImageAsset | None = None

    @property
    def uri(self) -> str:
        if self.asset is not None:
            return self.asset.image_uri
        return self.repository.repository_uri_for_tag(self.tag)

    def for_tasks(self) -> ecs.ContainerImage:
        """Returns the image for task definitions, whose role of ECS may pull it."""
        if self.asset is not None:
            return ecs.ContainerImage.from_docker_image_asset(self.asset)
        return ecs.ContainerImage.from_ecr_repository(self.repository, self.tag)


def make_image(scope: Construct, deployment: Deployment, image: NamedImage) -> Image:
    """Returns the image of `containers/<name>/Dockerfile`, with the repository's code as context.

    All functions of a stack share one image per name.
    """
    registry = Registry.read(deployment.properties)
    if registry is None:
        asset = _build(scope, image)
        return Image(asset.repository, asset.asset_hash, asset)
    repository = _find_repository(scope, registry, image.name)
    return Image(repository, image.tag(release_tag(deployment.properties)))


def _find_repository(scope: Construct, registry: Registry, name: str) -> ecr.IRepository:
    construct_id = f"{_title(name)}Repository"
    made = scope.node.try_find_child(construct_id)
    if made is not None:
        return cast(ecr.IRepository, made)
    full_name = registry.repository(name)
    owner = f"{registry.region}:{registry.account}"
    return ecr.Repository.from_repository_attributes(
        scope,
        construct_id,
        repository_name=full_name,
        repository_arn=f"arn:{cdk.Aws.PARTITION}:ecr:{owner}:repository/{full_name}",
    )


def _build(scope: Construct, image: NamedImage) -> assets.DockerImageAsset:
    construct_id = f"{_title(image.name)}Image"
    made = scope.node.try_find_child(construct_id)
    if isinstance(made, assets.DockerImageAsset):
        return made
    arm = image.processor == "ARM64"
    return assets.DockerImageAsset(
        scope,
        construct_id,
        directory=str(ROOT),
        file=f"containers/{image.name}/Dockerfile",
        platform=assets.Platform.LINUX_ARM64 if arm else assets.Platform.LINUX_AMD64,
        exclude=["*", *(f"!{kept}" for kept in CONTEXT), "**/__pycache__", "**/*.egg-info"],
        ignore_mode=cdk.IgnoreMode.DOCKER,
        build_args=dict(image.arguments) or None,
        asset_name=f"sleeper-{image.name}",
    )


def _title(name: str) -> str:
    return name.title().replace("_", "")
