"""Machines that an instance has started, and that CloudFormation does not stop by itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from sleeper.aws.errors import error_code, translate_errors
from sleeper.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_ecs import ECSClient
    from mypy_boto3_emr import EMRClient
    from mypy_boto3_emr_serverless import EMRServerlessClient
    from mypy_boto3_stepfunctions import SFNClient

_PAUSE_SECONDS = 5.0
_NAMED_MAX = 5
_TASKS_PER_REQUEST = 100
_CLUSTERS_PER_REQUEST = 10
_REASON = "the instance is deleted"
_DESIRED: Any = ("RUNNING", "STOPPED")
_LIVING: Any = (
    "STARTING",
    "BOOTSTRAPPING",
    "RUNNING",
    "WAITING",
    "TERMINATING",
)
_ACTIVE: Any = (
    "SUBMITTED",
    "PENDING",
    "SCHEDULED",
    "RUNNING",
    "QUEUED",
    "CANCELLING",
)
_IDLE = {"CREATED", "STOPPED", "TERMINATED"}
# The job has ended, or the application changes its state at this moment.
_TOO_LATE = {"ConflictException", "ValidationException", "ResourceNotFoundException"}


class Machines(Protocol):
    """What costs money or keeps resources in use until it has ended."""

    def stop(self) -> Sequence[str]:
        """Asks all to end. Returns those that have not ended, and can be called again."""


def stop_machines(machines: Machines, sleep: Callable[[float], None], seconds: float) -> None:
    """Stops all and waits for their end. UnavailableError if it takes longer."""
    waited = 0.0
    while running := machines.stop():
        if waited >= seconds:
            named = ", ".join(running[:_NAMED_MAX])
            raise UnavailableError(
                f"{len(running)} have not ended after {seconds:.0f} seconds: {named} "
                "(expected none: repeat it)"
            )
        sleep(_PAUSE_SECONDS)
        waited += _PAUSE_SECONDS


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of an ECS cluster. Services, which would start others, are deleted before."""

    client: "ECSClient"
    cluster: str

    def stop(self) -> list[str]:
        running = []
        with translate_errors(f"ECS cluster {self.cluster}"):
            for status in _DESIRED:
                for arns in self._pages(status):
                    running += self._stop(arns)
        return running

    def _pages(self, status: Any) -> list[list[str]]:
        pages = self.client.get_paginator("list_tasks").paginate(
            cluster=self.cluster,
            desiredStatus=status,
            PaginationConfig={"PageSize": _TASKS_PER_REQUEST},
        )
        return [page["taskArns"] for page in pages if page["taskArns"]]

    def _stop(self, arns: list[str]) -> list[str]:
        described = self.client.describe_tasks(cluster=self.cluster, tasks=arns)["tasks"]
        running = [task for task in described if task["lastStatus"] != "STOPPED"]
        for task in running:
            if task["desiredStatus"] != "STOPPED":
                self.client.stop_task(cluster=self.cluster, task=task["taskArn"], reason=_REASON)
        return [task["taskArn"] for task in running]


@dataclass(frozen=True, slots=True)
class ServerlessApplication:
    """An application of EMR Serverless. It cannot be stopped while it has jobs."""

    client: "EMRServerlessClient"
    application: str

    def stop(self) -> list[str]:
        running = self._jobs()
        for job in running:
            self._unless_too_late(
                lambda job=job: self.client.cancel_job_run(  # type: ignore[misc]
                    applicationId=self.application, jobRunId=job
                )
            )
        return running or self._stop_application()

    def stop_if_idle(self) -> list[str]:
        """Asks it to end, as `stop` does. UnavailableError if it has jobs, which go on."""
        if jobs := self._jobs():
            named = ", ".join(jobs[:_NAMED_MAX])
            raise UnavailableError(
                f"application {self.application} has {len(jobs)} jobs: {named} (expected none)"
            )
        return self._stop_application()

    def _jobs(self) -> list[str]:
        with translate_errors(f"jobs of application {self.application}"):
            pages = self.client.get_paginator("list_job_runs").paginate(
                applicationId=self.application, states=list(_ACTIVE)
            )
            return [job["id"] for page in pages for job in page["jobRuns"]]

    def _stop_application(self) -> list[str]:
        with translate_errors(f"application {self.application}"):
            found = self.client.get_application(applicationId=self.application)
        if found["application"]["state"] in _IDLE:
            return []
        self._unless_too_late(lambda: self.client.stop_application(applicationId=self.application))
        return [self.application]

    def _unless_too_late(self, request: Callable[[], object]) -> None:
        with translate_errors(f"application {self.application}"):
            try:
                request()
            except ClientError as error:
                if error_code(error) not in _TOO_LATE:
                    raise


@dataclass(frozen=True, slots=True)
class Executions:
    """The executions of a state machine, which lives until they have ended."""

    client: "SFNClient"
    state_machine: str

    def stop(self) -> list[str]:
        with translate_errors(f"state machine {self.state_machine}"):
            pages = self.client.get_paginator("list_executions").paginate(
                stateMachineArn=self.state_machine, statusFilter="RUNNING"
            )
            running = [each["executionArn"] for page in pages for each in page["executions"]]
            for arn in running:
                self.client.stop_execution(executionArn=arn, cause=_REASON)
        return running


@dataclass(frozen=True, slots=True)
class Clusters:
    """The EMR clusters whose nodes have a security group. The account may have others."""

    client: "EMRClient"
    security_group: str

    def stop(self) -> list[str]:
        with translate_errors("EMR clusters"):
            pages = self.client.get_paginator("list_clusters").paginate(ClusterStates=list(_LIVING))
            running = {
                cluster["Id"]: cluster["Status"]["State"]
                for page in pages
                for cluster in page["Clusters"]
                if self._has_group(cluster["Id"])
            }
            ending = [name for name, state in running.items() if state != "TERMINATING"]
            for start in range(0, len(ending), _CLUSTERS_PER_REQUEST):
                chosen = ending[start : start + _CLUSTERS_PER_REQUEST]
                self.client.terminate_job_flows(JobFlowIds=chosen)
        return list(running)

    def _has_group(self, cluster: str) -> bool:
        found = self.client.describe_cluster(ClusterId=cluster)["Cluster"]
        group = found.get("Ec2InstanceAttributes", {}).get("EmrManagedMasterSecurityGroup")
        return group == self.security_group
