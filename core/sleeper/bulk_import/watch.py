"""Looks after bulk imports that a platform accepted, until their end is known.

A driver tells the tracker how it ended. One that was killed, or never came to run, cannot: then
the platform says that the run is over, and the table's log, which is what counts, whether its
rows were taken in.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.spark_platform import PlatformName, RunOutcome, RunState, SparkPlatform
from sleeper.jobs.status import JobState
from sleeper.tables.table_ref import TableId

_LOCAL_FOLDER = "bulk_import"


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """A run of a job that a platform has accepted under its own reference."""

    run_id: str
    table_id: TableId
    job_id: str
    reference: str


class BulkImportRuns:
    """The accepted runs of one platform, and the messages of their jobs."""

    def __init__(self, instance: Instance, platform: PlatformName) -> None:
        self._root = instance.storage.imports()
        self._folder = f"runs/{platform.value}"

    def keep_message(self, run_id: str, body: str) -> str:
        """Where the driver finds the message."""
        path = f"jobs/{run_id}.json"
        self._root.create(path, body.encode())
        return self._root.url_of(path)

    def add(self, run: AcceptedRun) -> None:
        """From now on it is looked after."""
        self._root.create(self._path(run.run_id), json.dumps(asdict(run)).encode())

    def has(self, run_id: str) -> bool:
        """Whether it was accepted and its end is not known yet."""
        try:
            self._root.read(self._path(run_id))
        except NotFoundError:
            return False
        return True

    def all(self) -> Iterator[AcceptedRun]:
        """Those whose end is not known yet, in no order."""
        for found in self._root.list_objects(self._folder):
            try:
                raw = json.loads(self._root.read(found.path))
            except NotFoundError:
                continue
            yield AcceptedRun(**raw)

    def remove(self, run: AcceptedRun) -> None:
        """Its end is known."""
        self._root.delete([self._path(run.run_id)])

    def _path(self, run_id: str) -> str:
        return f"{self._folder}/{run_id}.json"


logger = logging.getLogger(__name__)
_ENDED = {JobState.COMMITTED, JobState.FAILED, JobState.REJECTED}
_SILENT = "the driver ended without a word"


def open_platform(instance: Instance, name: PlatformName) -> SparkPlatform:
    """Returns the platform that runs imports. InvalidRequestError if the instance has none."""
    if instance.jobs.spark_platform is None:
        raise InvalidRequestError(
            f"a local instance has no {name.value}: `sleeper bulk-import` runs Spark on this "
            "machine"
        )
    return instance.jobs.spark_platform(name)


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
    runs = BulkImportRuns(instance, name)
    running = told = found = 0
    for run in runs.all():
        try:
            if has_told(instance, run):
                told += 1
            elif _found_ended(instance, name, run):
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
    instance.jobs.tracker.record(event)
    logger.warning("bulk import found %s", event.step.value, extra=_extra(run))


def has_told(instance: Instance, run: AcceptedRun) -> bool:
    """Whether the tracker knows the run's end, or that the job was taken in by another."""
    try:
        job = instance.jobs.tracker.job(run.table_id, run.job_id)
    except NotFoundError:
        return False
    if job.state is JobState.COMMITTED:
        return True
    return any(each.run_id == run.run_id and each.state in _ENDED for each in job.runs)


def _found_ended(instance: Instance, name: PlatformName, run: AcceptedRun) -> bool:
    try:
        outcome = open_platform(instance, name).outcome(run.reference)
    except NotFoundError as error:
        outcome = RunOutcome(RunState.FAILED, f"the platform does not know it any more: {error}")
    if outcome.state is RunState.RUNNING:
        return False
    record_end(instance, run, outcome)
    return True


def _is_applied(instance: Instance, run: AcceptedRun) -> bool:
    try:
        instance.tables.index.by_id(run.table_id)
    except NotFoundError:
        return False
    with instance.tables.state(run.table_id).reading() as state:
        return state.jobs.applied(run.job_id) is not None


def _extra(run: AcceptedRun) -> dict[str, str]:
    return {"table": run.table_id, "job_id": run.job_id}
