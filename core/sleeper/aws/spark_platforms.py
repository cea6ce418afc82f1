"""The Spark platforms that an AWS instance was deployed with."""

from sleeper.aws.clients import aws_client
from sleeper.aws.config_bucket import deployed_value
from sleeper.aws.eks import EksStateMachine
from sleeper.aws.emr_cluster import ClusterSettings, ClusterSize, EmrClusters
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
from sleeper.properties.instance import ID
from sleeper.properties.values import InstanceProperties


def open_platform(properties: InstanceProperties, name: PlatformName) -> SparkPlatform:
    """Returns the platform. InvalidRequestError if the instance was deployed without it.

    The persistent cluster has none, because a process on it receives the jobs of its queue.
    """
    match name:
        case PlatformName.EMR_SERVERLESS:
            return EmrServerless(
                aws_client("emr-serverless"),
                deployed_value(properties, deployed.SERVERLESS_APPLICATION),
                deployed_value(properties, deployed.SERVERLESS_ROLE),
                f"/sleeper/{_clean_name(properties)}",
            )
        case PlatformName.EMR:
            return EmrClusters(aws_client("emr"), _settings(properties), _size(properties))
        case PlatformName.EKS:
            return EksStateMachine(
                aws_client("stepfunctions"),
                deployed_value(properties, deployed.EKS_STATE_MACHINE),
                deployed_value(properties, deployed.EKS_IMAGE),
            )
        case PlatformName.PERSISTENT_EMR:
            raise InvalidRequestError("the persistent cluster receives its jobs itself")


def _settings(properties: InstanceProperties) -> ClusterSettings:
    jobs = deployed_value(properties, deployed.BULK_IMPORT_BUCKET)
    return ClusterSettings(
        _clean_name(properties),
        properties.get(EMR_RELEASE),
        deployed_value(properties, deployed.EMR_IMAGE),
        properties.get(deployed.TASK_SUBNETS),
        deployed_value(properties, deployed.EMR_SECURITY_GROUP),
        deployed_value(properties, deployed.EMR_SERVICE_SECURITY_GROUP),
        deployed_value(properties, deployed.EMR_SERVICE_ROLE),
        deployed_value(properties, deployed.EMR_INSTANCE_PROFILE),
        deployed_value(properties, deployed.EMR_SECURITY_CONFIGURATION),
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
