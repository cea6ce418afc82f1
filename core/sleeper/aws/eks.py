"""Bulk imports on EKS: an execution of a state machine for each, which runs the driver's pod."""

import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from sleeper.aws.errors import code_of, translated
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.jobs.spark_platform import PlatformJob, RunOutcome, RunState
from sleeper.jobs.spark_submit import kubernetes_arguments

_THERE = "ExecutionAlreadyExists"
_GONE = {"ExecutionDoesNotExist", "StateMachineDoesNotExist"}
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

    client: Any
    state_machine_arn: str
    image: str

    def submit(self, job: PlatformJob) -> str:
        """See the port. A name is taken for 90 days after its execution ended."""
        told = json.dumps(execution_input(job, self.image))
        with translated(f"bulk import job {job.job_id} on EKS"):
            try:
                answer = self.client.start_execution(
                    stateMachineArn=self.state_machine_arn, name=job.run_id, input=told
                )
            except ClientError as error:
                if code_of(error) != _THERE:
                    raise
                return self._execution(job.run_id)
        return str(answer["executionArn"])

    def outcome(self, reference: str) -> RunOutcome:
        """See the port."""
        with translated(f"execution {reference}"):
            try:
                found = self.client.describe_execution(executionArn=reference)
            except ClientError as error:
                if code_of(error) in _GONE:
                    raise NotFoundError(f"execution {reference} does not exist") from error
                raise
        state = _ENDED.get(found["status"], RunState.RUNNING)
        if state is not RunState.FAILED:
            return RunOutcome(state)
        told = (found.get(part) for part in ("error", "cause"))
        return RunOutcome(state, ": ".join([found["status"], *filter(None, told)]))

    def _execution(self, name: str) -> str:
        return f"{self.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"


def execution_input(job: PlatformJob, image: str) -> dict[str, Any]:
    """What the state machine reads: a name of Kubernetes, and the pod of the driver."""
    environment: list[dict[str, Any]] = [
        {"name": k, "value": v} for k, v in sorted(job.environment.items())
    ]
    environment += [_of_pod("POD_IP", "status.podIP"), _of_pod("POD_NAME", "metadata.name")]
    return {
        "name": f"bulk-import-{job.run_id}",
        "image": image,
        "arguments": list(kubernetes_arguments(job, image)),
        "environment": environment,
        "cpu": job.spark_conf.get("spark.driver.cores", "1"),
        "memory": f"{_mebibytes(job.spark_conf.get('spark.driver.memory', '1g'))}Mi",
    }


def _of_pod(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mebibytes(memory: str) -> int:
    """Of the JVM, and of Python beside it."""
    number, unit = memory[:-1], memory[-1].lower()
    if not number.isdecimal() or unit not in "gm":
        raise InvalidRequestError(f"spark.driver.memory: {memory!r} is no size such as 8G")
    return int(number) * (1024 if unit == "g" else 1) + _OVERHEAD_MIB
