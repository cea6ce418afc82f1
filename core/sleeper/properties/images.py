"""Names of published container images.

A *registry* here is a registry of ECR and a prefix of repositories, such as
`123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper`. Each Dockerfile, `containers/<name>`, has a
repository there. A tag names the release, the values of the build's arguments, and the processor,
because Lambda refuses an image for several.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from sleeper import __version__
from sleeper.properties.deployment import IMAGES_REGISTRY, IMAGES_TAG
from sleeper.properties.values import InstanceProperties

PLATFORMS = {"ARM64": "linux/arm64", "X86_64": "linux/amd64"}
"""The platforms of images, by the values of properties `…cpu.architecture`."""

_REGISTRY = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(.+)")


@dataclass(frozen=True, slots=True)
class Registry:
    """A prefix of the repositories of an account in a region."""

    account: str
    region: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns the registry; None if it is not one of ECR."""
        match = _REGISTRY.fullmatch(text)
        return cls(*match.groups()) if match else None

    @classmethod
    def read(cls, properties: InstanceProperties) -> Self | None:
        """Returns the registry of the images that a deployment uses; None if it builds its own."""
        text = properties.get(IMAGES_REGISTRY)
        return None if text is None else cls.parse(text)

    def repository(self, name: str) -> str:
        """Returns the name of the repository of `containers/<name>`."""
        return f"{self.prefix}/{repository_name(name)}"


@dataclass(frozen=True, slots=True)
class NamedImage:
    """The image of `containers/<name>` for a processor, with the arguments of its build."""

    name: str
    processor: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    def tag(self, release: str) -> str:
        return list_tag(release, self.arguments) + f"-{PLATFORMS[self.processor].partition('/')[2]}"


def repository_name(name: str) -> str:
    """Returns the last part of the name of the repository of `containers/<name>`."""
    return name.replace("_", "-")


def release_tag(properties: InstanceProperties) -> str:
    """Returns the part of tags that names the release."""
    return properties.get(IMAGES_TAG) or __version__


def list_tag(release: str, arguments: Mapping[str, str]) -> str:
    """Returns the tag of the list of the images for all processors."""
    return "-".join([release, *arguments.values()])
