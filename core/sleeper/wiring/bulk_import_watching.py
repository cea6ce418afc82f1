"""Looks after bulk imports that a platform accepted, until their end is known.

A driver tells the tracker how it ended. One that was killed, or never came to run, cannot: then
the platform says that the run is over, and the table's log, which is what counts, whether its
rows were taken in.
"""

import logging
from dataclasses import dataclass

from sleeper.bulk_import.platform import PlatformName, RunOutcome, RunState, SparkPlatform
from sleeper.errors import NotFoundError, SleeperError
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.status import JobState
from sleeper.wiring.bulk_import_runs import AcceptedRun, BulkImportRuns
from sleeper.wiring.instance import Instance

logger = logging.getLogger(__name__)

_ENDED = {JobState.COMMITTED, JobState.FAILED, JobState.REJECTED}
_SILENT = "the driver ended without a word"


@dataclass(frozen=True, slots=True)
class WatchReport:
    """How many runs are still running, had told their end, or were found to have ended."""

    running: int = 0
    told: int = 0
    found: int = 0


def watch_bulk_imports(instance: Instance, name: PlatformName) -> WatchReport:
    """Records the end of each run that ended without telling it.

    What cannot be looked up now is looked at again next time.
    """
    runs, platform = BulkImportRuns(instance, name), instance.spark_platform(name)
    running = told = found = 0
    for run in runs.all():
        try:
            if has_told(instance, run):
                told += 1
            elif _found_ended(instance, platform, run):
                found += 1
            else:
                running += 1
                continue
        except SleeperError:
            logger.exception("not looked after", extra=_extra(run))
            running += 1
            continue
        runs.remove(run)
    return WatchReport(running, told, found)


def record_end(instance: Instance, run: AcceptedRun, outcome: RunOutcome) -> None:
    """Records how a run ended that is over and has not told it itself."""
    ref = JobRunRef(run.table_id, run.job_id, JobKind.BULK_IMPORT, run.run_id)
    now_ms = instance.clock()
    if _is_applied(instance, run):
        event = ref.event(JobStep.COMMITTED, now_ms)
    else:
        reason = f"{_SILENT}: {run.reference}: {outcome.reason or outcome.state.value}"
        event = ref.event(JobStep.FAILED, now_ms, reasons=(reason,))
    instance.jobs.record(event)
    logger.warning("bulk import found %s", event.step.value, extra=_extra(run))


def has_told(instance: Instance, run: AcceptedRun) -> bool:
    """Whether the tracker knows the run's end, or that the job was taken in by another."""
    try:
        job = instance.jobs.job(run.table_id, run.job_id)
    except NotFoundError:
        return False
    if job.state is JobState.COMMITTED:
        return True
    return any(each.run_id == run.run_id and each.state in _ENDED for each in job.runs)


def _found_ended(instance: Instance, platform: SparkPlatform, run: AcceptedRun) -> bool:
    try:
        outcome = platform.outcome(run.reference)
    except NotFoundError as error:
        outcome = RunOutcome(RunState.FAILED, f"the platform does not know it any more: {error}")
    if outcome.state is RunState.RUNNING:
        return False
    record_end(instance, run, outcome)
    return True


def _is_applied(instance: Instance, run: AcceptedRun) -> bool:
    try:
        instance.tables.by_id(run.table_id)
    except NotFoundError:
        return False
    with instance.state(run.table_id).reading() as state:
        return state.jobs.applied(run.job_id) is not None


def _extra(run: AcceptedRun) -> dict[str, str]:
    return {"table": run.table_id, "job_id": run.job_id}
