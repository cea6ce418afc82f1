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
from dataclasses import dataclass

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
    find_outcome,
    make_run_id,
    spark_settings,
)
from sleeper.jobs.status import JobState, JobStatus
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
    else:
        run = SparkRun(instance, adapter, request.run_id)
        has_platform = instance.jobs.spark_platform is not None
        rows = run.run_on_platform() if has_platform else run.run_in_process()
    return rows, rows


@dataclass(frozen=True, slots=True)
class SparkRun:
    """A run of an adapter whose source Spark reads. Returns the number of its rows.

    InvalidRequestError if the run was rejected, UnavailableError if it failed and may be retried.
    """

    instance: Instance
    adapter: Adapter
    run_id: str

    def run_in_process(self) -> int:
        """Runs the adapter in a process with Spark on this machine."""
        run = self._describe(new_run_id(), "the Spark process")
        arguments = (*self._arguments(run.run_id), INPUT_ARGUMENT)
        # The process would go on if this one were killed, while another worker runs the message.
        outcome = run_command((sys.executable, "-P", "-m", _DRIVER, *arguments), has_input=True)
        return self._end(run, outcome)

    def run_on_platform(self, wait: Callable[[float], object] = time.sleep) -> int:
        """Submits the run, unless one is submitted, and waits for its end."""
        platform = open_platform(self.instance, _PLATFORM)
        try:
            runs = self._find_job().runs
        except NotFoundError:
            runs = ()
        accepted = [self._describe(r.run_id, r.platform_run) for r in runs if r.platform_run]
        active = next((r for r in accepted if not is_end_recorded(self.instance, r)), None)
        if active is None:
            committed = [run for run in runs if run.state is JobState.COMMITTED]
            if committed:
                return committed[-1].rows_written or 0
            active = self._submit(platform, len(accepted))
        outcome = find_outcome(platform, active.reference)
        while outcome.state is RunState.RUNNING:
            wait(_POLL_SECONDS)
            outcome = find_outcome(platform, active.reference)
        return self._end(active, outcome)

    @property
    def _job_id(self) -> str:
        return self.adapter.job_id(self.run_id)

    @property
    def _table_id(self) -> TableId:
        return self.instance.tables.index.find(self.adapter.sink.table).id

    def _find_job(self) -> JobStatus:
        return self.instance.jobs.tracker.job(self._table_id, self._job_id)

    def _describe(self, tracker_run_id: str, reference: str) -> AcceptedRun:
        return AcceptedRun(tracker_run_id, self._table_id, self._job_id, reference)

    def _submit(self, platform: SparkPlatform, attempt: int) -> AcceptedRun:
        instance, job_id, table_id = self.instance, self._job_id, self._table_id
        # A task that dies before it recorded the run has counted the same attempts as the next
        # task, and the platform starts a run id once.
        run = make_run_id(table_id, job_id, str(attempt))
        reference = platform.submit(
            PlatformJob(
                run,
                job_id,
                self._arguments(run),
                spark_settings(_PLATFORM, instance.properties(), {}),
                environment=driver_environment(instance),
            )
        )
        ref = JobRunRef(table_id, job_id, ADAPTER_RUN, run)
        RunTracker(instance.jobs.tracker, instance.clock, ref).accept(reference, 1)
        logger.info("adapter run accepted as %s", reference, extra={"job_id": job_id})
        return self._describe(run, reference)

    def _arguments(self, tracker_run_id: str) -> tuple[str, ...]:
        """Returns the arguments of the driver (`sleeper.adapters.spark.job`)."""
        adapter_run = (ADAPTER_ARGUMENT, self.adapter.name, "--adapter-run", self.run_id)
        return (self.instance.where, *adapter_run, "--run-id", tracker_run_id)

    def _end(self, accepted: AcceptedRun, outcome: RunOutcome) -> int:
        """Records the end of a run, if the driver did not, and returns the number of its rows."""
        if not is_end_recorded(self.instance, accepted):
            record_end(self.instance, accepted, outcome, ADAPTER_RUN)
        job = self._find_job()
        if job.state is JobState.COMMITTED:
            return (job.last_run.rows_written if job.last_run else None) or 0
        (run,) = (each for each in job.runs if each.run_id == accepted.run_id)
        reason = "; ".join(run.reasons) or f"{accepted.reference} ended as {run.state.value}"
        if run.state is JobState.REJECTED:
            raise InvalidRequestError(reason)
        raise UnavailableError(reason)
