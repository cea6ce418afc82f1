"""The platforms that an AWS instance was deployed with."""

from sleeper.aws.clients import aws_client
from sleeper.aws.eks import EksStateMachine
from sleeper.aws.emr_cluster import ClusterPlace, ClusterSize, EmrClusters
from sleeper.aws.emr_serverless import EmrServerless
from sleeper.errors import InvalidRequestError
from sleeper.jobs.spark_platform import PlatformName, SparkPlatform
from sleeper.properties import deployed
from sleeper.properties.bulk_import import (
    EMR_CAPACITY_MAX,
    EMR_EXECUTOR_TYPES,
    EMR_INITIAL_CAPACITY,
    EMR_MAIN_TYPES,
    EMR_MARKET,
    EMR_RELEASE,
)
from sleeper.properties.declaration import Property
from sleeper.properties.instance import ID
from sleeper.properties.values import InstanceProperties


def open_platform(properties: InstanceProperties, name: PlatformName) -> SparkPlatform:
    """The platform. InvalidRequestError if the instance was deployed without it.

    The persistent cluster has none: a process of its own takes jobs from its queue.
    """
    match name:
        case PlatformName.EMR_SERVERLESS:
            return EmrServerless(
                aws_client("emr-serverless"),
                _deployed(properties, deployed.SERVERLESS_APPLICATION),
                _deployed(properties, deployed.SERVERLESS_ROLE),
                f"/sleeper/{_clean_name(properties)}",
            )
        case PlatformName.EMR:
            return EmrClusters(aws_client("emr"), _place(properties), _size(properties))
        case PlatformName.EKS:
            return EksStateMachine(
                aws_client("stepfunctions"),
                _deployed(properties, deployed.EKS_STATE_MACHINE),
                _deployed(properties, deployed.EKS_IMAGE),
            )
        case PlatformName.PERSISTENT_EMR:
            raise InvalidRequestError("the persistent cluster takes its jobs by itself")


def _place(properties: InstanceProperties) -> ClusterPlace:
    jobs = _deployed(properties, deployed.BULK_IMPORT_BUCKET)
    return ClusterPlace(
        _clean_name(properties),
        properties.get(EMR_RELEASE),
        _deployed(properties, deployed.EMR_IMAGE),
        properties.get(deployed.TASK_SUBNETS),
        _deployed(properties, deployed.EMR_SECURITY_GROUP),
        _deployed(properties, deployed.EMR_SERVICE_SECURITY_GROUP),
        _deployed(properties, deployed.EMR_SERVICE_ROLE),
        _deployed(properties, deployed.EMR_INSTANCE_PROFILE),
        _deployed(properties, deployed.EMR_SECURITY_CONFIGURATION),
        f"s3://{jobs}/logs/",
    )


def _size(properties: InstanceProperties) -> ClusterSize:
    return ClusterSize(
        properties.get(EMR_MAIN_TYPES),
        properties.get(EMR_EXECUTOR_TYPES),
        properties.get(EMR_MARKET),
        properties.get(EMR_INITIAL_CAPACITY),
        properties.get(EMR_CAPACITY_MAX),
    )


def _clean_name(properties: InstanceProperties) -> str:
    return f"sleeper-{properties.get(ID).lower().replace('.', '-')}-bulk-import"


def _deployed(properties: InstanceProperties, declaration: Property[str | None]) -> str:
    value = properties.get(declaration)
    if value is None:
        raise InvalidRequestError(
            f"property {declaration.name} is not set: deploy the instance again"
        )
    return value
