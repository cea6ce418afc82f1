"""The images of bulk imports. They begin with an image of AWS, which has Spark."""

from sleeper.properties.deployment import ARCHITECTURE, EMR_RELEASE
from sleeper.properties.images import NamedImage
from sleeper.properties.values import InstanceProperties

ON_EMR, ON_EKS = "emr-serverless", "emr-on-eks"
"""Base images with Spark. Clusters use the first, which has the same release."""


def emr_image(properties: InstanceProperties) -> NamedImage:
    return _image(properties, ON_EMR)


def eks_image(properties: InstanceProperties) -> NamedImage:
    return _image(properties, ON_EKS)


def build_arguments(base: str, release: str) -> dict[str, str]:
    """Returns the arguments of the Dockerfile, which tags name too."""
    return {"PLATFORM": base, "RELEASE": release}


def _image(properties: InstanceProperties, base: str) -> NamedImage:
    arguments = build_arguments(base, properties.get(EMR_RELEASE))
    return NamedImage("bulk_import", properties.get(ARCHITECTURE), arguments)
