"""Watches accepted bulk imports until their end is recorded.

A driver records its end in the tracker. For a driver that was killed or never started, the
platform reports the end of the run, and the table's log decides if the rows were committed.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.spark_platform import (
    PlatformName,
    RunOutcome,
    RunState,
    SparkPlatform,
    find_outcome,
)
from sleeper.jobs.status import JobState
from sleeper.tables import TableId

logger = logging.getLogger(__name__)
_ENDED = {JobState.COMMITTED, JobState.FAILED, JobState.REJECTED}


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """A run of a job that a platform accepted. `reference` is the platform's id of it."""

    run_id: str
    table_id: TableId
    job_id: str
    reference: str


class BulkImportRuns:
    """The watched runs of one platform, and the messages of their jobs."""

    def __init__(self, instance: Instance, platform: PlatformName) -> None:
        self._root = instance.storage.imports()
        self._folder = f"runs/{platform.value}"

    def keep_message(self, run_id: str, body: str) -> str:
        """Stores the message for the driver and returns its URL."""
        path = f"jobs/{run_id}.json"
        self._root.create(path, body.encode())
        return self._root.url_of(path)

    def add(self, run: AcceptedRun) -> None:
        """Starts to watch a run."""
        self._root.create(self._path(run.run_id), json.dumps(asdict(run)).encode())

    def has(self, run_id: str) -> bool:
        """Whether the run is watched: accepted, without a recorded end."""
        try:
            self._root.read(self._path(run_id))
        except NotFoundError:
            return False
        return True

    def all(self) -> Iterator[AcceptedRun]:
        """Yields the watched runs, in no order."""
        for stored in self._root.list_objects(self._folder):
            try:
                raw = json.loads(self._root.read(stored.path))
            except NotFoundError:
                continue
            yield AcceptedRun(**raw)

    def remove(self, run: AcceptedRun) -> None:
        """Stops watching a run."""
        self._root.delete([self._path(run.run_id)])

    def _path(self, run_id: str) -> str:
        return f"{self._folder}/{run_id}.json"


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
    """Numbers of runs: still running, ended by their driver, or ended by this watch."""

    running: int = 0
    reported: int = 0
    recorded: int = 0


def watch_bulk_imports(instance: Instance, name: PlatformName) -> WatchReport:
    """Records the end of each run whose driver did not record it.

    A run whose platform or tracker does not answer is checked again by the next call.
    """
    runs = BulkImportRuns(instance, name)
    running = reported = recorded = 0
    for run in runs.all():
        try:
            if is_end_recorded(instance, run):
                reported += 1
            elif _record_if_ended(instance, name, run):
                recorded += 1
            else:
                running += 1
                continue
        except SleeperError:
            logger.exception("bulk import not checked", extra=_extra(run))
            running += 1
            continue
        runs.remove(run)
    return WatchReport(running, reported, recorded)


def record_end(
    instance: Instance,
    run: AcceptedRun,
    outcome: RunOutcome,
    kind: JobKind = JobKind.BULK_IMPORT,
) -> None:
    """Records the end of a run whose driver did not record it."""
    ref = JobRunRef(run.table_id, run.job_id, kind, run.run_id)
    now_ms = instance.clock()
    if _is_applied(instance, run):
        event = ref.event(JobStep.COMMITTED, now_ms)
    else:
        cause = outcome.reason or outcome.state.value
        reason = f"the driver did not record its end: {run.reference}: {cause}"
        event = ref.event(JobStep.FAILED, now_ms, reasons=(reason,))
    instance.jobs.tracker.record(event)
    logger.warning(
        "unreported %s %s", kind.value.replace("_", " "), event.step.value, extra=_extra(run)
    )


def is_end_recorded(instance: Instance, run: AcceptedRun) -> bool:
    """Whether the tracker has the run's end, or the commit of the job by another run."""
    try:
        job = instance.jobs.tracker.job(run.table_id, run.job_id)
    except NotFoundError:
        return False
    if job.state is JobState.COMMITTED:
        return True
    return any(each.run_id == run.run_id and each.state in _ENDED for each in job.runs)


def _record_if_ended(instance: Instance, name: PlatformName, run: AcceptedRun) -> bool:
    outcome = find_outcome(open_platform(instance, name), run.reference)
    if outcome.state is RunState.RUNNING:
        return False
    record_end(instance, run, outcome)
    return True


def _is_applied(instance: Instance, run: AcceptedRun) -> bool:
    try:
        instance.tables.index.get(run.table_id)
    except NotFoundError:
        return False
    with instance.tables.state(run.table_id).reading() as state:
        return state.jobs.applied(run.job_id) is not None


def _extra(run: AcceptedRun) -> dict[str, str]:
    return {"table": run.table_id, "job_id": run.job_id}
