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
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import PlatformName, RunOutcome, RunState, run_id_of, yarn_command
from sleeper.properties.deployed import EMR_IMAGE
from sleeper.runs.tracking import RunTracker, find_job_table, parse_file_job

logger = logging.getLogger(__name__)
_SECONDS_TO_STOP = 10
_ERROR_BYTES = 2_000


def run_persistent_import(instance: Instance, message: Message) -> None:
    """Submits a message's job, waits for its end and ensures that the tracker records it.

    InvalidRequestError if it can never run. The job is then recorded as rejected.
    """
    job = parse_file_job(instance, message, JobKind.BULK_IMPORT)
    table_id = find_job_table(instance, JobKind.BULK_IMPORT, job).ref.id
    run_id = run_id_of(table_id, job.id, f"{message.message_id}#{message.receives}")
    reference = f"spark-submit sleeper-{run_id}"
    run = JobRunRef(table_id, job.id, JobKind.BULK_IMPORT, run_id)
    tracker = RunTracker(instance.jobs.tracker, instance.clock, run)
    try:
        job_request = platform_job(instance, PlatformName.PERSISTENT_EMR, message, run)
    except InvalidRequestError as error:
        tracker.reject(error)
        raise
    command = yarn_command(job_request, instance.properties().get(EMR_IMAGE) or "")
    tracker.accept(reference, len(job.files))
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
