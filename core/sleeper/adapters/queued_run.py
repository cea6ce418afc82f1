"""Runs the adapter of a message: in this process, or where Spark runs.

Spark runs on EMR Serverless on AWS, locally in a process. A task submits the run and waits for its
end, so that the message keeps its place in the queue, and a run that fails is retried like any
other. A task that takes over the message of one that died finds the run in the tracker and waits
for it.
"""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from sleeper.adapters.definition import ADAPTER_RUN, Adapter
from sleeper.adapters.message import check_workers, parse_adapter_message
from sleeper.adapters.run import run_adapter
from sleeper.adapters.store import AdapterStore
from sleeper.bulk_import.start import driver_environment, run_command
from sleeper.bulk_import.watch import AcceptedRun, is_end_recorded, open_platform, record_end
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobRunRef, new_run_id
from sleeper.jobs.queue import Message
from sleeper.jobs.spark_platform import (
    PlatformJob,
    PlatformName,
    RunOutcome,
    RunState,
    SparkPlatform,
    make_run_id,
    spark_settings,
)
from sleeper.jobs.status import JobRun, JobState
from sleeper.runs.tracking import RunTracker, check_age, track_run
from sleeper.tables import TableId

logger = logging.getLogger(__name__)
ADAPTER_ARGUMENT = "--adapter"
"""The argument of the driver that is followed by an adapter's name."""

INPUT_ARGUMENT = "--while-input-is-open"
"""The argument of a driver that ends when its standard input closes."""

_PLATFORM = PlatformName.EMR_SERVERLESS
_POLL_SECONDS = 10.0
_UNKNOWN_TABLE = TableId("")
_DRIVER = "sleeper.adapters.spark.job"


def run_adapter_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> tuple[int, int]:
    """Runs the adapter of a message. Returns the numbers of rows read and written.

    InvalidRequestError, recorded as a rejection, if the message or its adapter is invalid, or if
    the message is as old as the ids of committed jobs that the state keeps.
    """
    kind = ADAPTER_RUN
    with track_run(instance, kind, _UNKNOWN_TABLE, message.message_id, task_id).reject_errors():
        request = parse_adapter_message(message.body)
    unknown = f"{request.adapter}:{request.run_id}"
    with track_run(instance, kind, _UNKNOWN_TABLE, unknown, task_id).reject_errors():
        adapter = AdapterStore(instance.storage.root).get(request.adapter)
        table_id = instance.tables.index.find(adapter.sink.table).id
    job_id = adapter.job_id(request.run_id)
    with track_run(instance, kind, table_id, job_id, task_id).reject_errors():
        check_age(instance, message, f"run {job_id}", "if its rows are not there")
        # The adapter may have been replaced since the message was sent.
        check_workers(instance, adapter)
    if not adapter.needs_spark:
        rows = run_adapter(instance, adapter.name, request.run_id, task_id=task_id).rows
    elif instance.jobs.spark_platform is not None:
        rows = run_on_platform(instance, adapter, request.run_id)
    else:
        rows = run_in_process(instance, adapter, request.run_id)
    return rows, rows


def run_in_process(instance: Instance, adapter: Adapter, run_id: str) -> int:
    """Runs the adapter in a process with Spark on this machine and returns its rows.

    Errors as of `run_on_platform`.
    """
    table_id = instance.tables.index.find(adapter.sink.table).id
    run = AcceptedRun(new_run_id(), table_id, adapter.job_id(run_id), "the Spark process")
    arguments = (*_arguments(instance, adapter, run_id, run), INPUT_ARGUMENT)
    # The process would go on if this one were killed, while another worker runs the message.
    outcome = run_command((sys.executable, "-P", "-m", _DRIVER, *arguments), has_input=True)
    if not is_end_recorded(instance, run):
        record_end(instance, run, outcome, ADAPTER_RUN)
    return _result(instance, run)


def run_on_platform(
    instance: Instance,
    adapter: Adapter,
    run_id: str,
    wait: Callable[[float], object] = time.sleep,
) -> int:
    """Submits a run, unless one is submitted, waits for its end and returns its rows.

    InvalidRequestError if the run was rejected, UnavailableError if it failed and may be retried.
    """
    table_id = instance.tables.index.find(adapter.sink.table).id
    platform = open_platform(instance, _PLATFORM)
    runs = _runs(instance, table_id, adapter.job_id(run_id))
    accepted = [
        AcceptedRun(run.run_id, table_id, adapter.job_id(run_id), run.platform_run)
        for run in runs
        if run.platform_run is not None
    ]
    active = next((each for each in accepted if not is_end_recorded(instance, each)), None)
    if active is None:
        committed = [run for run in runs if run.state is JobState.COMMITTED]
        if committed:
            return committed[-1].rows_written or 0
        active = _submit(instance, platform, adapter, run_id, table_id, len(accepted))
    _await_end(instance, platform, active, wait)
    return _result(instance, active)


def _submit(
    instance: Instance,
    platform: SparkPlatform,
    adapter: Adapter,
    run_id: str,
    table_id: TableId,
    attempt: int,
) -> AcceptedRun:
    job_id = adapter.job_id(run_id)
    # A task that dies before it recorded the run has counted the same attempts as the next task,
    # and the platform starts a run id once.
    run = make_run_id(table_id, job_id, str(attempt))
    accepted = AcceptedRun(run, table_id, job_id, "")
    reference = platform.submit(
        PlatformJob(
            run,
            job_id,
            _arguments(instance, adapter, run_id, accepted),
            spark_settings(_PLATFORM, instance.properties(), {}),
            environment=driver_environment(instance),
        )
    )
    ref = JobRunRef(table_id, job_id, ADAPTER_RUN, run)
    RunTracker(instance.jobs.tracker, instance.clock, ref).accept(reference, 1)
    logger.info("adapter run accepted as %s", reference, extra={"job_id": job_id})
    return replace(accepted, reference=reference)


def _arguments(
    instance: Instance, adapter: Adapter, run_id: str, run: AcceptedRun
) -> tuple[str, ...]:
    """Returns the arguments of the driver (`sleeper.adapters.spark.job`)."""
    adapter_run = (ADAPTER_ARGUMENT, adapter.name, "--adapter-run", run_id)
    return (instance.where, *adapter_run, "--run-id", run.run_id)


def _await_end(
    instance: Instance,
    platform: SparkPlatform,
    run: AcceptedRun,
    wait: Callable[[float], object],
) -> None:
    """Waits until the platform reports the run's end, and records it if the driver did not."""
    outcome = _outcome(platform, run.reference)
    while outcome.state is RunState.RUNNING:
        wait(_POLL_SECONDS)
        outcome = _outcome(platform, run.reference)
    if not is_end_recorded(instance, run):
        record_end(instance, run, outcome, ADAPTER_RUN)


def _outcome(platform: SparkPlatform, reference: str) -> RunOutcome:
    try:
        return platform.outcome(reference)
    except NotFoundError as error:
        return RunOutcome(RunState.FAILED, f"unknown to the platform: {error}")


def _result(instance: Instance, accepted: AcceptedRun) -> int:
    job = instance.jobs.tracker.job(accepted.table_id, accepted.job_id)
    if job.state is JobState.COMMITTED:
        return (job.last_run.rows_written if job.last_run else None) or 0
    (run,) = (each for each in job.runs if each.run_id == accepted.run_id)
    reason = "; ".join(run.reasons) or f"{accepted.reference} ended as {run.state.value}"
    if run.state is JobState.REJECTED:
        raise InvalidRequestError(reason)
    raise UnavailableError(reason)


def _runs(instance: Instance, table_id: TableId, job_id: str) -> tuple[JobRun, ...]:
    try:
        return instance.jobs.tracker.job(table_id, job_id).runs
    except NotFoundError:
        return ()
