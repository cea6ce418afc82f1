"""Bulk imports on EMR. Each has a cluster of its own, which ends with its only step.

A message's `platformSpec` can set the cluster's nodes, under the names of the properties.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sleeper.aws.errors import translate_errors
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.spark_platform import (
    PlatformJob,
    RunOutcome,
    RunState,
    docker_configuration,
    yarn_command,
)

if TYPE_CHECKING:
    from mypy_boto3_emr import EMRClient

_PREFIXES = (
    "sleeper.table.bulk.import.emr.",
    "sleeper.default.bulk.import.emr.",
    "sleeper.bulk.import.emr.",
)
# Longer than a queue redelivers a message.
_LOOKBACK = timedelta(days=2)
_SPOT_MINUTES = 10
_TYPES_MAX = 5
_LIVING: Any = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING", "TERMINATED"]
_FAILURE_PARTS = ("Reason", "Message", "LogFile")
_ALL_DONE = "ALL_STEPS_COMPLETED"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The network, roles, image and release of clusters. `main_file` is the driver's, in S3."""

    name_prefix: str
    release: str
    image: str
    main_file: str
    subnets: tuple[str, ...]
    security_group: str
    service_security_group: str
    service_role: str
    instance_profile: str
    security_configuration: str
    log_uri: str


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A cluster's nodes: a main one and `initial` to `most` executors, of these types."""

    main_types: tuple[str, ...]
    executor_types: tuple[str, ...]
    market: str
    initial: int
    most: int

    def overridden(self, spec: Mapping[str, str]) -> "ClusterSize":
        """Returns the size that a message sets. Unknown members are ignored."""
        values = {_short_name(name): value for name, value in spec.items()}
        return ClusterSize(
            _types(values, "master", self.main_types),
            _types(values, "executor", self.executor_types),
            _market(values.get("executor.market.type"), self.market),
            _count(values, "executor.initial.capacity", self.initial),
            _count(values, "executor.max.capacity", self.most),
        )


@dataclass(frozen=True, slots=True)
class EmrClusters:
    """Implements `sleeper.jobs.spark_platform.SparkPlatform`. A reference is a cluster's id."""

    client: "EMRClient"
    settings: ClusterSettings
    size: ClusterSize

    def submit(self, job: PlatformJob) -> str:
        """See the port. EMR has no client token, so a cluster of that name is searched first."""
        request = cluster_request(self.settings, self.size.overridden(job.platform_spec), job)
        with translate_errors(f"bulk import job {job.job_id} on EMR"):
            existing = self._find_cluster(request["Name"])
            return existing or str(self.client.run_job_flow(**request)["JobFlowId"])

    def outcome(self, reference: str) -> RunOutcome:
        try:
            with translate_errors(f"EMR cluster {reference}"):
                cluster = self.client.describe_cluster(ClusterId=reference)["Cluster"]
        except InvalidRequestError as error:
            raise NotFoundError(str(error)) from error
        status = cluster["Status"]
        if not status["State"].startswith("TERMINATED"):
            return RunOutcome(RunState.RUNNING)
        reason = status.get("StateChangeReason", {})
        if status["State"] == "TERMINATED" and reason.get("Code") == _ALL_DONE:
            return RunOutcome(RunState.SUCCEEDED)
        end = (
            f"{status['State']}: {reason.get('Message') or reason.get('Code') or 'no reason given'}"
        )
        return RunOutcome(RunState.FAILED, "; ".join([end, *self._failures(reference)]))

    def _find_cluster(self, name: str) -> str | None:
        pages = self.client.get_paginator("list_clusters").paginate(
            ClusterStates=_LIVING, CreatedAfter=datetime.now(UTC) - _LOOKBACK
        )
        return next((c["Id"] for p in pages for c in p["Clusters"] if c["Name"] == name), None)

    def _failures(self, cluster_id: str) -> list[str]:
        with translate_errors(f"steps of EMR cluster {cluster_id}"):
            steps = self.client.list_steps(ClusterId=cluster_id)["Steps"]
        details: list[Any] = [step["Status"].get("FailureDetails") or {} for step in steps]
        return [
            ": ".join(str(each[part]) for part in _FAILURE_PARTS if each.get(part))
            for each in details
            if each
        ]


def cluster_request(
    settings: ClusterSettings, size: ClusterSize, job: PlatformJob
) -> dict[str, Any]:
    """Returns the request for a cluster that ends after its step."""
    step = {
        "Name": "bulk import",
        "ActionOnFailure": "TERMINATE_CLUSTER",
        "HadoopJarStep": {
            "Jar": "command-runner.jar",
            "Args": list(yarn_command(job, settings.image, settings.main_file)),
        },
    }
    limits = {
        "UnitType": "InstanceFleetUnits",
        "MinimumCapacityUnits": size.initial,
        "MaximumCapacityUnits": max(size.initial, size.most),
    }
    return {
        "Name": f"{settings.name_prefix}-{job.run_id}",
        "ReleaseLabel": settings.release,
        "Applications": [{"Name": "Spark"}],
        "Configurations": [docker_configuration(settings.image)],
        "ServiceRole": settings.service_role,
        "JobFlowRole": settings.instance_profile,
        "SecurityConfiguration": settings.security_configuration,
        "LogUri": settings.log_uri,
        "Steps": [step],
        "Instances": {
            "InstanceFleets": _fleets(size),
            "Ec2SubnetIds": list(settings.subnets),
            "EmrManagedMasterSecurityGroup": settings.security_group,
            "EmrManagedSlaveSecurityGroup": settings.security_group,
            "ServiceAccessSecurityGroup": settings.service_security_group,
            "KeepJobFlowAliveWhenNoSteps": False,
            "TerminationProtected": False,
        },
        "ManagedScalingPolicy": {"ComputeLimits": limits},
        "VisibleToAllUsers": True,
        "Tags": [{"Key": "for-use-with-amazon-emr-managed-policies", "Value": "true"}],
    }


def _fleets(size: ClusterSize) -> list[dict[str, Any]]:
    spot = size.market == "SPOT"
    others: dict[str, Any] = {
        "InstanceFleetType": "CORE",
        "TargetSpotCapacity" if spot else "TargetOnDemandCapacity": size.initial,
        "InstanceTypeConfigs": _configs(size.executor_types),
    }
    if spot:
        others["LaunchSpecifications"] = {
            "SpotSpecification": {
                "TimeoutDurationMinutes": _SPOT_MINUTES,
                "TimeoutAction": "SWITCH_TO_ON_DEMAND",
            }
        }
    main = {
        "InstanceFleetType": "MASTER",
        "TargetOnDemandCapacity": 1,
        "InstanceTypeConfigs": _configs(size.main_types),
    }
    return [main, others]


def _configs(types: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"InstanceType": each, "WeightedCapacity": 1} for each in types[:_TYPES_MAX]]


def _short_name(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.replace(".x86.", ".").replace(".arm.", ".")


def _types(values: Mapping[str, str], node: str, default: tuple[str, ...]) -> tuple[str, ...]:
    for name in (f"{node}.instance.types", f"{node}.instance.type"):
        if values.get(name):
            return tuple(each.strip() for each in values[name].split(",") if each.strip())
    return default


def _market(market: str | None, default: str) -> str:
    if market is None:
        return default
    if market.upper() not in {"SPOT", "ON_DEMAND"}:
        raise InvalidRequestError(
            f'bulk import message: "platformSpec" executor.market.type: {market[:100]!r} is '
            "neither SPOT nor ON_DEMAND"
        )
    return market.upper()


def _count(values: Mapping[str, str], name: str, default: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    if not value.isdecimal() or not 1 <= int(value) <= 10_000:
        raise InvalidRequestError(
            f'bulk import message: "platformSpec" {name}: {value[:100]!r} is not a number of nodes '
            "(expected 1 to 10000)"
        )
    return int(value)
