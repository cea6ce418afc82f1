"""Submits bulk imports to the platform of their queue (docs/formats.md, "Bulk import messages").

`start_bulk_import` checks a message, stores it for the driver, submits a run and records it as
accepted. After a crash in between, the redelivered message has the same run id, under which a
platform starts nothing twice. The driver records the rest in the tracker.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.bulk_import.watch import AcceptedRun, BulkImportRuns, open_platform
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.ingest_job import (
    body_with_id,
    ingest_job_from_message,
    optional_text,
    parse_object,
    text_of,
)
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import (
    PlatformJob,
    PlatformName,
    run_id_of,
    spark_settings,
)
from sleeper.jobs.status import JobState
from sleeper.properties.deployed import CONFIG_BUCKET
from sleeper.properties.instance import REGION
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
    table_id = find_job_table(instance, JobKind.BULK_IMPORT, job).ref.id
    run = JobRunRef(
        table_id,
        job.id,
        JobKind.BULK_IMPORT,
        run_id_of(table_id, job.id, message.message_id),
    )
    tracker = RunTracker(instance.jobs.tracker, instance.clock, run)
    runs = BulkImportRuns(instance, name)
    earlier = _earlier_run(instance, run, runs)
    if earlier is not None:
        logger.info("bulk import already submitted as run %s", earlier, extra=_extra(run))
        return BulkImportStart(earlier, None)
    try:
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
        known = instance.jobs.tracker.job(run.table_id, run.job_id).runs
    except NotFoundError:
        known = ()
    for each in known:
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
    for file in ingest_job_from_message(message.body, message.message_id).files:
        instance.storage.sources.open(file)
    request = spark_request_from_message(message.body)
    settings = spark_settings(name, instance.properties(), request.spark_conf)
    body = body_with_id(message.body, "id", message.message_id)
    where = BulkImportRuns(instance, name).keep_message(run.run_id, body)
    arguments = (instance.where, where, "--sent-ms", str(message.sent_ms), "--run-id", run.run_id)
    return PlatformJob(
        run.run_id,
        run.job_id,
        arguments,
        settings,
        request.platform_spec,
        _driver_environment(instance),
    )


def _driver_environment(instance: Instance) -> Mapping[str, str]:
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


_WHAT = "bulk import message"


@dataclass(frozen=True, slots=True)
class SparkRequest:
    """The optional members of the message in addition to those of an ingest job."""

    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    class_name: str | None = None


def spark_request_from_message(body: str) -> SparkRequest:
    """Parses a message. InvalidRequestError names the invalid member."""
    raw = parse_object(body, _WHAT)
    class_name = optional_text(raw, "className", _WHAT)
    return SparkRequest(_texts(raw, "platformSpec"), _texts(raw, "sparkConf"), class_name)


def _texts(raw: Mapping[str, Any], member: str) -> Mapping[str, str]:
    """Returns a map of texts without its null members."""
    texts = raw.get(member)
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise InvalidRequestError(f'{_WHAT}: "{member}" must be a map of texts')
    return {
        name: text_of(value, f'{_WHAT}: "{member}" must be a map of texts: {name[:200]!r}')
        for name, value in texts.items()
        if value is not None
    }
