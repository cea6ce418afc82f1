"""The Spark platforms of an AWS instance: EMR Serverless, EKS and EMR.

On EMR Serverless each run is a job run of the instance's application. On EKS a state machine's
execution runs the pod of the Spark driver.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sleeper.aws.clients import aws_client
from sleeper.aws.config_bucket import deployed_value
from sleeper.aws.emr_cluster import ClusterSettings, ClusterSize, EmrClusters
from sleeper.aws.errors import MissingResourceError, error_code, translate_errors
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.spark_platform import (
    MAIN_FILE,
    PlatformJob,
    PlatformName,
    RunOutcome,
    RunState,
    SparkPlatform,
    kubernetes_arguments,
    serverless_settings,
    submit_options,
)
from sleeper.properties import deployed
from sleeper.properties.deployment import (
    EMR_CAPACITY_MAX,
    EMR_EXECUTOR_TYPES,
    EMR_INITIAL_CAPACITY,
    EMR_MAIN_TYPES,
    EMR_MARKET,
    EMR_RELEASE,
)
from sleeper.properties.instance import ID
from sleeper.properties.values import InstanceProperties

if TYPE_CHECKING:
    from mypy_boto3_emr_serverless import EMRServerlessClient
    from mypy_boto3_stepfunctions import SFNClient


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
            raise InvalidRequestError("the persistent cluster polls its queue itself")


def _settings(properties: InstanceProperties) -> ClusterSettings:
    jobs = deployed_value(properties, deployed.BULK_IMPORT_BUCKET)
    return ClusterSettings(
        _clean_name(properties),
        properties.get(EMR_RELEASE),
        deployed_value(properties, deployed.EMR_IMAGE),
        deployed_value(properties, deployed.EMR_MAIN_FILE),
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
    return f"{deployed.stack_name(properties.get(ID))}-bulk-import"


_EXISTS = "ExecutionAlreadyExists"
_MISSING = {"ExecutionDoesNotExist", "StateMachineDoesNotExist"}
_EKS_STATES = {
    "SUCCEEDED": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "TIMED_OUT": RunState.FAILED,
    "ABORTED": RunState.FAILED,
}
_OVERHEAD_MIB = 2048


@dataclass(frozen=True, slots=True)
class EksStateMachine:
    """Implements `sleeper.jobs.spark_platform.SparkPlatform`.

    A reference is an execution's ARN, whose name is the run id.
    """

    client: "SFNClient"
    state_machine_arn: str
    image: str

    def submit(self, job: PlatformJob) -> str:
        """See the port. Step Functions refuses an execution's name for 90 days after its end."""
        text = json.dumps(execution_input(job, self.image))
        with translate_errors(f"bulk import job {job.job_id} on EKS"):
            try:
                response = self.client.start_execution(
                    stateMachineArn=self.state_machine_arn, name=job.run_id, input=text
                )
            except ClientError as error:
                if error_code(error) != _EXISTS:
                    raise
                arn = self.state_machine_arn.replace(":stateMachine:", ":execution:")
                return f"{arn}:{job.run_id}"
        return str(response["executionArn"])

    def outcome(self, reference: str) -> RunOutcome:
        with translate_errors(f"execution {reference}"):
            try:
                execution = self.client.describe_execution(executionArn=reference)
            except ClientError as error:
                if error_code(error) in _MISSING:
                    raise NotFoundError(f"execution {reference} does not exist") from error
                raise
        state = _EKS_STATES.get(execution["status"], RunState.RUNNING)
        if state is not RunState.FAILED:
            return RunOutcome(state)
        details = (execution.get("error"), execution.get("cause"))
        return RunOutcome(state, ": ".join([execution["status"], *filter(None, details)]))


def execution_input(job: PlatformJob, image: str) -> dict[str, Any]:
    """Returns the state machine's input: the name and the pod of the driver's job."""
    environment: list[dict[str, Any]] = [
        {"name": k, "value": v} for k, v in sorted(job.environment.items())
    ]
    environment += [_pod_field("POD_IP", "status.podIP"), _pod_field("POD_NAME", "metadata.name")]
    return {
        "name": f"bulk-import-{job.run_id}",
        "image": image,
        "arguments": list(kubernetes_arguments(job, image)),
        "environment": environment,
        "cpu": job.spark_conf.get("spark.driver.cores", "1"),
        "memory": f"{_mebibytes(job.spark_conf.get('spark.driver.memory', '1g'))}Mi",
    }


def _pod_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mebibytes(memory: str) -> int:
    """Returns the pod's memory: that of the JVM and an overhead for Python."""
    number, unit = memory[:-1], memory[-1].lower()
    if not number.isdecimal() or unit not in "gm":
        raise InvalidRequestError(
            f"spark.driver.memory: {memory!r} is not a size (expected a size such as 8G)"
        )
    return int(number) * (1024 if unit == "g" else 1) + _OVERHEAD_MIB


_SERVERLESS_STATES = {
    "SUCCESS": RunState.SUCCEEDED,
    "FAILED": RunState.FAILED,
    "CANCELLED": RunState.FAILED,
    "CANCELLING": RunState.RUNNING,
}
# Without it EMR Serverless stops a run after twelve hours.
_NO_TIMEOUT = 0


@dataclass(frozen=True, slots=True)
class EmrServerless:
    """Implements `sleeper.jobs.spark_platform.SparkPlatform`.

    `log_group` gets the logs of driver and executors. A reference is a job run's id.
    """

    client: "EMRServerlessClient"
    application_id: str
    role_arn: str
    log_group: str

    def submit(self, job: PlatformJob) -> str:
        """See the port. The client token, the run id, makes it idempotent."""
        driver: Any = {
            "entryPoint": MAIN_FILE,
            "entryPointArguments": list(job.arguments),
            "sparkSubmitParameters": " ".join(submit_options(serverless_settings(job))),
        }
        logs: Any = {
            "enabled": True,
            "logGroupName": self.log_group,
            "logStreamNamePrefix": job.run_id,
        }
        with translate_errors(f"bulk import job {job.job_id} on EMR Serverless"):
            response = self.client.start_job_run(
                applicationId=self.application_id,
                clientToken=job.run_id,
                executionRoleArn=self.role_arn,
                name=job.run_id,
                jobDriver={"sparkSubmit": driver},
                executionTimeoutMinutes=_NO_TIMEOUT,
                configurationOverrides={
                    "monitoringConfiguration": {"cloudWatchLoggingConfiguration": logs}
                },
            )
        return str(response["jobRunId"])

    def outcome(self, reference: str) -> RunOutcome:
        try:
            with translate_errors(f"job run {reference} of EMR Serverless"):
                run = self.client.get_job_run(
                    applicationId=self.application_id, jobRunId=reference
                )["jobRun"]
        except MissingResourceError as error:
            # The run or its application is missing; without the application the run has ended.
            raise NotFoundError(str(error)) from error
        state = _SERVERLESS_STATES.get(run["state"], RunState.RUNNING)
        if state is not RunState.FAILED:
            return RunOutcome(state)
        return RunOutcome(state, f"{run['state']}: {run.get('stateDetails') or 'no reason given'}")
