"""A bulk import on the persistent cluster: spark-submit, run from the cluster's main node.

It lasts as long as the driver. The message is done when the driver has ended, however it ended:
the tracker knows how, from the driver or else from here. Where the process is told to end, the
message goes back, and whoever takes it submits the job again; the job's id keeps its rows from
being taken in twice.
"""

import logging
import subprocess
import tempfile

from sleeper.bulk_import.start import platform_job
from sleeper.bulk_import.watch import AcceptedRun, has_told, record_end
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
_SAID_BYTES = 2_000


def run_persistent_import(instance: Instance, message: Message) -> None:
    """Submits a message's job and waits for its end, of which the tracker is told.

    InvalidRequestError if it can never be run: then it is tracked as rejected.
    """
    job = job_of_message(instance, message, JobKind.BULK_IMPORT)
    table_id = table_of_job(instance, job, JobKind.BULK_IMPORT).ref.id
    run_id = run_id_of(table_id, job.id, f"{message.message_id}#{message.receives}")
    reference = f"spark-submit sleeper-{run_id}"
    run = JobRunRef(table_id, job.id, JobKind.BULK_IMPORT, run_id, reference)
    try:
        asked = platform_job(instance, PlatformName.PERSISTENT_EMR, message, run)
    except InvalidRequestError as error:
        TrackedJob(instance, run.kind, table_id, job.id, run_id=run_id).reject(error)
        raise
    command = yarn_command(asked, instance.properties().get(EMR_IMAGE) or "")
    instance.jobs.tracker.record(
        run.event(JobStep.ACCEPTED, instance.clock(), inputs=len(job.files))
    )
    outcome = _outcome_of(command)
    accepted = AcceptedRun(run_id, table_id, job.id, reference)
    if not has_told(instance, accepted):
        record_end(instance, accepted, outcome)


def _outcome_of(command: tuple[str, ...]) -> RunOutcome:
    """Runs the command to its end. Whatever interrupts that ends the command too."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
            )
        except OSError as error:
            raise UnavailableError(f"{command[0]} cannot be run: {error}") from error
        try:
            status = process.wait()
        finally:
            _end(process)
        if status == 0:
            return RunOutcome(RunState.SUCCEEDED)
        said.seek(max(said.tell() - _SAID_BYTES, 0))
        last = said.read().decode(errors="replace").strip()
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
