"""Submits bulk imports to the platform of their queue (docs/formats.md, "Bulk import messages").

`start_bulk_import` checks a message, stores it for the driver, submits a run and records it as
accepted. After a crash in between, the redelivered message has the same run id, under which a
platform starts nothing twice. The driver records the rest in the tracker.

The persistent cluster runs spark-submit on its main node (`run_persistent_import`). A message is
complete when its driver has ended, successfully or not. If the driver did not record its end in
the tracker, this process does. If this process stops, the message returns and its next receiver
submits the job again. The job's id prevents duplicate rows.
"""

import logging
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from sleeper.bulk_import.watch import (
    AcceptedRun,
    BulkImportRuns,
    is_end_recorded,
    open_platform,
    record_end,
)
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.ingest_job import INGEST_JOBS, add_id
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import (
    PlatformJob,
    PlatformName,
    RunOutcome,
    RunState,
    make_run_id,
    spark_settings,
    yarn_command,
)
from sleeper.jobs.status import JobState
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.lenient_json import LenientText, OptionalText
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import CONFIG_BUCKET, EMR_IMAGE, EMR_MAIN_FILE
from sleeper.properties.instance import REGION
from sleeper.runs.enrichment import refuse_enrichment
from sleeper.runs.tracking import RunTracker, find_job_table, parse_file_job

logger = logging.getLogger(__name__)


_ACTIVE = {JobState.ACCEPTED, JobState.RUNNING, JobState.FINISHED}


@dataclass(frozen=True, slots=True)
class BulkImportStart:
    """A run and the platform's reference, None if the run was submitted earlier."""

    run_id: str
    reference: str | None


def start_bulk_import(instance: Instance, name: PlatformName, message: Message) -> BulkImportStart:
    """Submits the job of a message, unless it is committed or another run of it is active.

    InvalidRequestError if it can never run. The job is then recorded as rejected.
    """
    job = parse_file_job(instance, message, JobKind.BULK_IMPORT)
    table = find_job_table(instance, JobKind.BULK_IMPORT, job)
    table_id = table.ref.id
    run = JobRunRef(
        table_id,
        job.id,
        JobKind.BULK_IMPORT,
        make_run_id(table_id, job.id, message.message_id),
    )
    tracker = RunTracker(instance.jobs.tracker, instance.clock, run)
    runs = BulkImportRuns(instance, name)
    earlier = _earlier_run(instance, run, runs)
    if earlier is not None:
        logger.info("bulk import already submitted as run %s", earlier, extra=_extra(run))
        return BulkImportStart(earlier, None)
    try:
        # The driver would find it too, after its cluster has started.
        refuse_enrichment(table, "a bulk import")
        job_request = platform_job(instance, name, message, run)
        reference = open_platform(instance, name).submit(job_request)
    except InvalidRequestError as error:
        tracker.reject(error)
        raise
    runs.add(AcceptedRun(run.run_id, table_id, run.job_id, reference))
    tracker.accept(reference, len(job.files))
    logger.info("bulk import accepted as %s", reference, extra=_extra(run))
    return BulkImportStart(run.run_id, reference)


def _earlier_run(instance: Instance, run: JobRunRef, runs: BulkImportRuns) -> str | None:
    """Returns the id of this run if accepted, or of an active or committed run of the job."""
    try:
        earlier_runs = instance.jobs.tracker.job(run.table_id, run.job_id).runs
    except NotFoundError:
        earlier_runs = ()
    for each in earlier_runs:
        is_this = each.run_id == run.run_id and each.accepted_ms is not None
        # The tracker shows a killed driver as active until the watch records its end.
        is_active = each.state in _ACTIVE and runs.has(each.run_id)
        if is_this or is_active or each.state is JobState.COMMITTED:
            return each.run_id
    return None


def platform_job(
    instance: Instance, name: PlatformName, message: Message, run: JobRunRef
) -> PlatformJob:
    """Stores a message for the driver and returns the job to submit.

    InvalidRequestError if the message has settings or files that are not allowed.
    """
    for file in INGEST_JOBS.parse(message.body, message.message_id).files:
        instance.storage.sources.open(file)
    request = parse_spark_request(message.body)
    settings = spark_settings(name, instance.properties(), request.spark_conf)
    body = add_id(message.body, "id", message.message_id)
    where = BulkImportRuns(instance, name).keep_message(run.run_id, body)
    arguments = (instance.where, where, "--sent-ms", str(message.sent_ms), "--run-id", run.run_id)
    return PlatformJob(
        run.run_id,
        run.job_id,
        arguments,
        settings,
        request.platform_spec,
        driver_environment(instance),
    )


def driver_environment(instance: Instance) -> Mapping[str, str]:
    """Returns the environment of driver and executors, which cannot look up the account."""
    properties = instance.properties()
    variables = {
        "SLEEPER_CONFIG_BUCKET": properties.get(CONFIG_BUCKET),
        "AWS_REGION": properties.get(REGION),
        "AWS_DEFAULT_REGION": properties.get(REGION),
    }
    return {variable: value for variable, value in variables.items() if value}


def _extra(run: JobRunRef) -> dict[str, str]:
    return {"table": run.table_id, "job_id": run.job_id}


Settings = Annotated[Mapping[str, LenientText], Member(optional=True)]


@dataclass(frozen=True, slots=True)
class SparkRequest:
    """The optional members of the message in addition to those of an ingest job."""

    platform_spec: Settings = field(default_factory=dict)
    spark_conf: Settings = field(default_factory=dict)
    class_name: OptionalText = None


_REQUESTS = JsonCodec(SparkRequest, camel_case)


def parse_spark_request(body: str) -> SparkRequest:
    """Parses a message. InvalidRequestError names the invalid member."""
    return _REQUESTS.parse(body, "bulk import message")


_SECONDS_TO_STOP = 10
_ERROR_BYTES = 2_000


def run_persistent_import(
    instance: Instance, message: Message, _task_id: str | None = None
) -> tuple[int, int]:
    """Submits a message's job, waits for its end and ensures that the tracker records it.

    Returns no numbers of rows, which the run records. InvalidRequestError if it can never
    run. The job is then recorded as rejected.
    """
    job = parse_file_job(instance, message, JobKind.BULK_IMPORT)
    table = find_job_table(instance, JobKind.BULK_IMPORT, job)
    table_id = table.ref.id
    run_id = make_run_id(table_id, job.id, f"{message.message_id}#{message.receives}")
    reference = f"spark-submit sleeper-{run_id}"
    run = JobRunRef(table_id, job.id, JobKind.BULK_IMPORT, run_id)
    tracker = RunTracker(instance.jobs.tracker, instance.clock, run)
    try:
        # The driver would find it too, after its cluster has started.
        refuse_enrichment(table, "a bulk import")
        job_request = platform_job(instance, PlatformName.PERSISTENT_EMR, message, run)
    except InvalidRequestError as error:
        tracker.reject(error)
        raise
    image, main_file = (_deployed_value(instance, each) for each in (EMR_IMAGE, EMR_MAIN_FILE))
    command = yarn_command(job_request, image, main_file)
    tracker.accept(reference, len(job.files))
    outcome = run_command(command)
    accepted = AcceptedRun(run_id, table_id, job.id, reference)
    if not is_end_recorded(instance, accepted):
        record_end(instance, accepted, outcome)
    return 0, 0


def _deployed_value(instance: Instance, declaration: Property[str | None]) -> str:
    """Returns the property. A deployment starts the cluster before it writes all of them."""
    value = instance.properties().get(declaration)
    if value is None:
        raise UnavailableError(f"property {declaration.name} is not set by a deployment yet")
    return value


def run_command(command: tuple[str, ...], has_input: bool = False) -> RunOutcome:
    """Runs a command of Spark to its end. An interrupt ends the command too.

    With `has_input` its standard input closes when this process dies, and is empty.
    """
    given = subprocess.PIPE if has_input else subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=subprocess.DEVNULL, stderr=errors
            )
        except OSError as error:
            raise UnavailableError(f"cannot run {command[0]}: {error}") from error
        try:
            status = process.wait()
        finally:
            _end(process)
            if process.stdin is not None:
                process.stdin.close()
        if status == 0:
            return RunOutcome(RunState.SUCCEEDED)
        errors.seek(max(errors.tell() - _ERROR_BYTES, 0))
        last = errors.read().decode(errors="replace").strip()
    logger.warning("Spark ended with status %d: %s", status, last)
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
