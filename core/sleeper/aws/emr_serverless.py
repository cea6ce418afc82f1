"""Bulk imports on EMR Serverless: each is a job run of the instance's application."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sleeper.aws.errors import MissingResourceError, translate_errors
from sleeper.errors import NotFoundError
from sleeper.jobs.spark_platform import PlatformJob, RunOutcome, RunState
from sleeper.jobs.spark_submit import MAIN_FILE, serverless_settings, submit_options

if TYPE_CHECKING:
    from mypy_boto3_emr_serverless import EMRServerlessClient

_ENDED = {
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
        """See the port."""
        try:
            with translate_errors(f"job run {reference} of EMR Serverless"):
                run = self.client.get_job_run(
                    applicationId=self.application_id, jobRunId=reference
                )["jobRun"]
        except MissingResourceError as error:
            # The run or its application is missing; without the application the run has ended.
            raise NotFoundError(str(error)) from error
        state = _ENDED.get(run["state"], RunState.RUNNING)
        if state is not RunState.FAILED:
            return RunOutcome(state)
        return RunOutcome(state, f"{run['state']}: {run.get('stateDetails') or 'no reason given'}")
