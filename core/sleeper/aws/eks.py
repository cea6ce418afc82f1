"""Bulk imports on EKS. A state machine's execution runs the pod of the Spark driver."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sleeper.aws.errors import error_code, translate_errors
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.spark_platform import PlatformJob, RunOutcome, RunState
from sleeper.jobs.spark_submit import kubernetes_arguments

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_EXISTS = "ExecutionAlreadyExists"
_MISSING = {"ExecutionDoesNotExist", "StateMachineDoesNotExist"}
_ENDED = {
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
        """See the port."""
        with translate_errors(f"execution {reference}"):
            try:
                execution = self.client.describe_execution(executionArn=reference)
            except ClientError as error:
                if error_code(error) in _MISSING:
                    raise NotFoundError(f"execution {reference} does not exist") from error
                raise
        state = _ENDED.get(execution["status"], RunState.RUNNING)
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
            f"spark.driver.memory: {memory!r} is not a size (expected such as 8G)"
        )
    return int(number) * (1024 if unit == "g" else 1) + _OVERHEAD_MIB
