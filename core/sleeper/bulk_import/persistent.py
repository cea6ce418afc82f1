"""Bulk imports on the persistent cluster, with spark-submit on the cluster's main node.

A message is complete when its driver has ended, successfully or not. The driver records its end
in the tracker, otherwise this process does. If this process stops, the message returns and its
next receiver submits the job again. The job's id prevents duplicate rows.
"""

import logging
import subprocess
import tempfile

from sleeper.bulk_import.start import platform_job
from sleeper.bulk_import.watch import AcceptedRun, is_end_recorded, record_end
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import PlatformName, RunOutcome, RunState, run_id_of
from sleeper.jobs.spark_submit import yarn_command
from sleeper.properties.deployed import EMR_IMAGE
from sleeper.runs.file_jobs import job_of_message, table_of_job
from sleeper.runs.tracked_job import TrackedJob

logger = logging.getLogger(__name__)
_SECONDS_TO_STOP = 10
_ERROR_BYTES = 2_000


def run_persistent_import(instance: Instance, message: Message) -> None:
    """Submits a message's job, waits for its end and ensures that the tracker records it.

    InvalidRequestError if it can never run. The job is then recorded as rejected.
    """
    job = job_of_message(instance, message, JobKind.BULK_IMPORT)
    table_id = table_of_job(instance, job, JobKind.BULK_IMPORT).ref.id
    run_id = run_id_of(table_id, job.id, f"{message.message_id}#{message.receives}")
    reference = f"spark-submit sleeper-{run_id}"
    run = JobRunRef(table_id, job.id, JobKind.BULK_IMPORT, run_id, reference)
    try:
        job_request = platform_job(instance, PlatformName.PERSISTENT_EMR, message, run)
    except InvalidRequestError as error:
        TrackedJob(instance, run.kind, table_id, job.id, run_id=run_id).reject(error)
        raise
    command = yarn_command(job_request, instance.properties().get(EMR_IMAGE) or "")
    instance.jobs.tracker.record(
        run.event(JobStep.ACCEPTED, instance.clock(), inputs=len(job.files))
    )
    outcome = _run_command(command)
    accepted = AcceptedRun(run_id, table_id, job.id, reference)
    if not is_end_recorded(instance, accepted):
        record_end(instance, accepted, outcome)


def _run_command(command: tuple[str, ...]) -> RunOutcome:
    """Runs the command to its end. An interrupt ends the command too."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        except OSError as error:
            raise UnavailableError(f"cannot run {command[0]}: {error}") from error
        try:
            status = process.wait()
        finally:
            _end(process)
        if status == 0:
            return RunOutcome(RunState.SUCCEEDED)
        errors.seek(max(errors.tell() - _ERROR_BYTES, 0))
        last = errors.read().decode(errors="replace").strip()
    logger.warning("spark-submit ended with status %d: %s", status, last)
    return RunOutcome(RunState.FAILED, f"exit status {status}: {last}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
