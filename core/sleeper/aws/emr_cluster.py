"""Bulk imports on EMR: a cluster for each, which ends with its one step.

A message's `platformSpec` may say what nodes it has, under the names that the properties have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sleeper.aws.errors import translated
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.spark_platform import PlatformJob, RunOutcome, RunState
from sleeper.jobs.spark_submit import docker_configuration, yarn_command

_PREFIXES = (
    "sleeper.table.bulk.import.emr.",
    "sleeper.default.bulk.import.emr.",
    "sleeper.bulk.import.emr.",
)
# Longer than a message comes again.
_LOOKED_BACK = timedelta(days=2)
_SPOT_MINUTES = 10
_TYPES_MAX = 5
_LIVING = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING", "TERMINATED"]
_FAILURE_PARTS = ("Reason", "Message", "LogFile")
_ALL_DONE = "ALL_STEPS_COMPLETED"


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """Where clusters are made, with what roles, and from what image and release."""

    name_prefix: str
    release: str
    image: str
    subnets: tuple[str, ...]
    security_group: str
    service_security_group: str
    service_role: str
    instance_profile: str
    security_configuration: str
    log_uri: str


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A cluster's nodes: one of the main types, and from `initial` to `most` of the others."""

    main_types: tuple[str, ...]
    executor_types: tuple[str, ...]
    market: str
    initial: int
    most: int

    def overridden(self, spec: Mapping[str, str]) -> "ClusterSize":
        """As a message wants it, or InvalidRequestError. Other members are ignored."""
        wanted = {_plain(name): value for name, value in spec.items()}
        return ClusterSize(
            _types(wanted, "master", self.main_types),
            _types(wanted, "executor", self.executor_types),
            _market(wanted.get("executor.market.type"), self.market),
            _count(wanted, "executor.initial.capacity", self.initial),
            _count(wanted, "executor.max.capacity", self.most),
        )


@dataclass(frozen=True, slots=True)
class EmrClusters:
    """Implements `sleeper.jobs.spark_platform.SparkPlatform`. A reference is a cluster's id."""

    client: Any
    place: ClusterPlace
    size: ClusterSize

    def submit(self, job: PlatformJob) -> str:
        """See the port. EMR knows no client token: a cluster of that name is looked for first."""
        request = cluster_request(self.place, self.size.overridden(job.platform_spec), job)
        with translated(f"bulk import job {job.job_id} on EMR"):
            found = self._cluster_named(request["Name"])
            return found or str(self.client.run_job_flow(**request)["JobFlowId"])

    def outcome(self, reference: str) -> RunOutcome:
        """See the port."""
        try:
            with translated(f"EMR cluster {reference}"):
                cluster = self.client.describe_cluster(ClusterId=reference)["Cluster"]
        except InvalidRequestError as error:
            raise NotFoundError(str(error)) from error
        status = cluster["Status"]
        if not status["State"].startswith("TERMINATED"):
            return RunOutcome(RunState.RUNNING)
        why = status.get("StateChangeReason", {})
        if status["State"] == "TERMINATED" and why.get("Code") == _ALL_DONE:
            return RunOutcome(RunState.SUCCEEDED)
        said = f"{status['State']}: {why.get('Message') or why.get('Code') or 'no reason given'}"
        return RunOutcome(RunState.FAILED, "; ".join([said, *self._failures(reference)]))

    def _cluster_named(self, name: str) -> str | None:
        pages = self.client.get_paginator("list_clusters").paginate(
            ClusterStates=_LIVING, CreatedAfter=datetime.now(UTC) - _LOOKED_BACK
        )
        return next((c["Id"] for p in pages for c in p["Clusters"] if c["Name"] == name), None)

    def _failures(self, cluster_id: str) -> list[str]:
        with translated(f"steps of EMR cluster {cluster_id}"):
            steps = self.client.list_steps(ClusterId=cluster_id)["Steps"]
        details = (step["Status"].get("FailureDetails") or {} for step in steps)
        return [
            ": ".join(str(each[part]) for part in _FAILURE_PARTS if each.get(part))
            for each in details
            if each
        ]


def cluster_request(place: ClusterPlace, size: ClusterSize, job: PlatformJob) -> dict[str, Any]:
    """What EMR is asked for: the cluster with its step, after which it ends."""
    step = {
        "Name": "bulk import",
        "ActionOnFailure": "TERMINATE_CLUSTER",
        "HadoopJarStep": {
            "Jar": "command-runner.jar",
            "Args": list(yarn_command(job, place.image)),
        },
    }
    limits = {
        "UnitType": "InstanceFleetUnits",
        "MinimumCapacityUnits": size.initial,
        "MaximumCapacityUnits": max(size.initial, size.most),
    }
    return {
        "Name": f"{place.name_prefix}-{job.run_id}",
        "ReleaseLabel": place.release,
        "Applications": [{"Name": "Spark"}],
        "Configurations": [docker_configuration(place.image)],
        "ServiceRole": place.service_role,
        "JobFlowRole": place.instance_profile,
        "SecurityConfiguration": place.security_configuration,
        "LogUri": place.log_uri,
        "Steps": [step],
        "Instances": {
            "InstanceFleets": _fleets(size),
            "Ec2SubnetIds": list(place.subnets),
            "EmrManagedMasterSecurityGroup": place.security_group,
            "EmrManagedSlaveSecurityGroup": place.security_group,
            "ServiceAccessSecurityGroup": place.service_security_group,
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


def _plain(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.replace(".x86.", ".").replace(".arm.", ".")


def _types(wanted: Mapping[str, str], node: str, default: tuple[str, ...]) -> tuple[str, ...]:
    for name in (f"{node}.instance.types", f"{node}.instance.type"):
        if wanted.get(name):
            return tuple(each.strip() for each in wanted[name].split(",") if each.strip())
    return default


def _market(wanted: str | None, default: str) -> str:
    if wanted is None:
        return default
    if wanted.upper() not in {"SPOT", "ON_DEMAND"}:
        raise InvalidRequestError(
            f'bulk import message: "platformSpec" executor.market.type: {wanted[:100]!r} is '
            "neither SPOT nor ON_DEMAND"
        )
    return wanted.upper()


def _count(wanted: Mapping[str, str], name: str, default: int) -> int:
    value = wanted.get(name)
    if value is None:
        return default
    if not value.isdecimal() or not 1 <= int(value) <= 10_000:
        raise InvalidRequestError(
            f'bulk import message: "platformSpec" {name}: {value[:100]!r} is no number of nodes'
        )
    return int(value)
