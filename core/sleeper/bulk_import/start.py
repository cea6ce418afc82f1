"""Gives bulk imports to the platform that their queue stands for.

A message is checked, its body kept where the driver finds it, a run of it submitted, and the
run written down as accepted. Whatever dies in between, the message comes again: the run has the
same id then, under which a platform starts nothing twice. The driver tells the tracker the rest.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.bulk_import.job import spark_request_from_message
from sleeper.bulk_import.watch import AcceptedRun, BulkImportRuns, open_platform
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.files_message import body_with_id
from sleeper.jobs.ingest_job import ingest_job_from_message
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import (
    PlatformJob,
    PlatformName,
    run_id_of,
    spark_settings,
)
from sleeper.jobs.status import JobRun, JobState
from sleeper.properties.deployed import CONFIG_BUCKET
from sleeper.properties.instance import REGION
from sleeper.runs.file_jobs import job_of_message, table_of_job
from sleeper.runs.tracked_job import TrackedJob
from sleeper.tables.table_ref import TableId

logger = logging.getLogger(__name__)

_UNDER_WAY = {JobState.ACCEPTED, JobState.RUNNING, JobState.FINISHED}


@dataclass(frozen=True, slots=True)
class BulkImportStart:
    """`reference` is the platform's; None if nothing was submitted, as it was before."""

    run_id: str
    reference: str | None


def start_bulk_import(instance: Instance, name: PlatformName, message: Message) -> BulkImportStart:
    """Submits the job of a message, unless it was or is taken in already.

    InvalidRequestError if it can never be run: then it is tracked as rejected.
    """
    job = job_of_message(instance, message, JobKind.BULK_IMPORT)
    table_id = table_of_job(instance, job, JobKind.BULK_IMPORT).ref.id
    run = JobRunRef(
        table_id,
        job.id,
        JobKind.BULK_IMPORT,
        run_id_of(table_id, job.id, message.message_id),
    )
    runs = BulkImportRuns(instance, name)
    earlier = _earlier_run(instance, run, runs)
    if earlier is not None:
        logger.info("submitted before, as run %s", earlier, extra=_told(run))
        return BulkImportStart(earlier, None)
    try:
        asked = platform_job(instance, name, message, run)
        reference = open_platform(instance, name).submit(asked)
    except InvalidRequestError as error:
        TrackedJob(instance, run.kind, table_id, job.id, run_id=run.run_id).reject(error)
        raise
    _accept(instance, run, runs, reference, len(job.files))
    return BulkImportStart(run.run_id, reference)


def _earlier_run(instance: Instance, run: JobRunRef, runs: BulkImportRuns) -> str | None:
    """This run if it was accepted, or another of the job that is under way or committed."""
    try:
        known = instance.jobs.tracker.job(run.table_id, run.job_id).runs
    except NotFoundError:
        known = ()
    for each in known:
        if _is_same(each, run) or each.state is JobState.COMMITTED or _is_under_way(each, runs):
            return each.run_id
    return None


def _is_same(known: JobRun, run: JobRunRef) -> bool:
    return known.run_id == run.run_id and known.accepted_ms is not None


def _is_under_way(known: JobRun, runs: BulkImportRuns) -> bool:
    """A driver that died without a word is under way for the tracker until it is looked after."""
    return known.state in _UNDER_WAY and runs.has(known.run_id)


def platform_job(
    instance: Instance, name: PlatformName, message: Message, run: JobRunRef
) -> PlatformJob:
    """What a platform is asked to run for a message, whose body is kept for the driver.

    InvalidRequestError if the message asks for settings or files that it may not.
    """
    for file in ingest_job_from_message(message.body, message.message_id).files:
        instance.storage.sources.open(file)
    request = spark_request_from_message(message.body)
    settings = spark_settings(name, instance.properties(), request.spark_conf)
    body = body_with_id(message.body, "id", message.message_id)
    where = BulkImportRuns(instance, name).keep_message(run.run_id, body)
    told = (instance.where, where, "--sent-ms", str(message.sent_ms), "--run-id", run.run_id)
    environment = _driver_environment(instance)
    return PlatformJob(run.run_id, run.job_id, told, settings, request.platform_spec, environment)


def _driver_environment(instance: Instance) -> Mapping[str, str]:
    """What driver and executors are told, who may reach no service that knows the account."""
    properties = instance.properties()
    told = {
        "SLEEPER_CONFIG_BUCKET": properties.get(CONFIG_BUCKET),
        "AWS_REGION": properties.get(REGION),
        "AWS_DEFAULT_REGION": properties.get(REGION),
    }
    return {variable: value for variable, value in told.items() if value}


def _accept(
    instance: Instance, run: JobRunRef, runs: BulkImportRuns, reference: str, inputs: int
) -> None:
    runs.add(AcceptedRun(run.run_id, TableId(run.table_id), run.job_id, reference))
    accepted = JobRunRef(run.table_id, run.job_id, run.kind, run.run_id, reference)
    instance.jobs.tracker.record(accepted.event(JobStep.ACCEPTED, instance.clock(), inputs=inputs))
    logger.info("bulk import accepted as %s", reference, extra=_told(run))


def _told(run: JobRunRef) -> dict[str, str]:
    return {"table": run.table_id, "job_id": run.job_id}
