"""Background work of a local instance: schedules, and pools of worker processes.

The runner creates work (per table: compaction jobs, splits, collection, snapshots) and sends it to
queues, which workers poll. It keeps no durable state in memory, so after a crash of the runner or a
worker the next run continues. Messages of dead workers return at once, because each records its
receiver's process.
"""

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from sleeper.compaction.plan import create_table_jobs
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.garbage_collection.service import (
    finish_deletions,
    run_garbage_collection,
    run_orphan_collection,
    snapshot_table,
    sweep_abandoned,
)
from sleeper.instance import BackgroundWork, Instance
from sleeper.jobs.queue import QueueName
from sleeper.properties.declaration import Property
from sleeper.properties.instance import (
    COLLECTION_PERIOD_MINUTES,
    COMPACTION_CREATION_PERIOD_MINUTES,
    LOCAL_WORKERS,
    ORPHAN_PERIOD_HOURS,
    SNAPSHOT_PERIOD_MINUTES,
    SPLITTING_PERIOD_MINUTES,
    TRACKER_DAYS,
)
from sleeper.query_service.service import remove_old_queries
from sleeper.splitting.find import SentSplit, send_splits
from sleeper.statestore.fold import DAY_MS
from sleeper.system import Operation
from sleeper.systems import load, systems
from sleeper.tables import TableId, TableRef
from sleeper.workers.companion import CompanionProcess
from sleeper.workers.pool import WorkerPool, stop_pools
from sleeper.workers.run_status import JOB_REPORTS, JobTotals, Listener, OnJob, RunStatus

logger = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_UNAVAILABLE_WAIT_SECONDS = 5.0
_PROBLEMS_MAX = 20
_PERIODS: dict[str, tuple[Property[int], float]] = {
    "deletions": (COLLECTION_PERIOD_MINUTES, 60.0),
    "housekeeping": (ORPHAN_PERIOD_HOURS, 3600.0),
    "compaction": (COMPACTION_CREATION_PERIOD_MINUTES, 60.0),
    "splitting": (SPLITTING_PERIOD_MINUTES, 60.0),
    "collection": (COLLECTION_PERIOD_MINUTES, 60.0),
    "snapshot": (SNAPSHOT_PERIOD_MINUTES, 60.0),
}
"""The property with the period of each operation on tables, and its unit in seconds."""


@dataclass(slots=True)
class _TableProgress:
    """The version at which a table was last examined, and the times of its operations."""

    examined_number: int = -1
    done_at: dict[str, float] = field(default_factory=dict)
    splits_sent: dict[str, SentSplit] = field(default_factory=dict)


def run_instance(
    instance: Instance,
    until_idle: bool = False,
    workers: int | None = None,
    listener: Listener = lambda _: None,
    on_job: OnJob = lambda _: None,
) -> RunStatus:
    """Runs until interrupted, or with `until_idle` until no work is left.

    `listener` receives the progress, and `on_job` each job that a worker ran.
    InvalidRequestError if the instance is not a local one.
    """
    if instance.background is None:
        raise InvalidRequestError(
            f"instance {instance.where} runs its background work in lambdas and "
            "tasks; `sleeper pause` stops its schedules and `sleeper resume` starts them"
        )
    count = workers or instance.properties().get(LOCAL_WORKERS) or os.cpu_count() or 1
    runner = _Runner(instance, instance.background, listener, count, on_job)
    try:
        return runner.run(until_idle)
    finally:
        runner.stop()


class _Runner:
    def __init__(
        self,
        instance: Instance,
        background: BackgroundWork,
        listener: Listener,
        workers: int,
        on_job: OnJob,
    ) -> None:
        self._instance = instance
        self._background = background
        self._listener = listener
        self._on_job = on_job
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._totals = JobTotals()
        self._workers = WorkerPool(background.folder, workers, on_line=self._lines.put)
        self._companions = [
            CompanionProcess(instance, background.folder, companion)
            for system in systems()
            for companion in system.companions
        ]
        self._tables: dict[TableId, _TableProgress] = {}
        self._done_at: dict[str, float] = {}
        self._is_first_round = True
        self._dead_before = 0
        self._due_ms: int | None = None
        self._status = RunStatus()
        self._start = time.monotonic()

    def run(self, until_idle: bool) -> RunStatus:
        self._due_ms = self._instance.clock() if until_idle else None
        self._dead_before = self._count_dead()
        while True:
            try:
                is_idle = self._run_round(until_idle)
            except UnavailableError as error:
                if until_idle:
                    raise
                # For example a full disk, which may get space again.
                self._add_problem(str(error))
                is_idle = False
                time.sleep(_UNAVAILABLE_WAIT_SECONDS)
            self._update(workers=len(self._workers), idle=is_idle)
            if is_idle and until_idle:
                self.stop()
                return self._status
            self._tell()
            time.sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Stops the workers, whose jobs have a limited time to finish."""
        stop_pools(*(each.pool for each in self._companions), self._workers)
        self._tell()

    def _tell(self) -> None:
        """Reports the jobs that ended, and the status."""
        while not self._lines.empty():
            try:
                report = JOB_REPORTS.parse(self._lines.get(), "job report")
            except InvalidRequestError:
                continue  # user code printed it
            self._totals.add(report)
            self._on_job(report)
        totals = self._totals
        self._update(
            seconds=time.monotonic() - self._start,
            done=dict(totals.done),
            failures=totals.failures,
        )
        self._listener(self._status)

    def _count_dead(self) -> int:
        jobs = self._instance.jobs
        return sum(jobs.queue(name).counts().dead for name in jobs.queues)

    def _run_round(self, until_idle: bool) -> bool:
        """Returns whether no work is left."""
        was_busy = self._is_busy()
        # To start workers takes longer than to see that they have no work.
        self._keep_workers(is_needed=was_busy or not until_idle)
        was_busy |= self._are_companions_busy(until_idle)
        found_work = self._create_work(is_final=until_idle and not was_busy)
        is_busy = was_busy or found_work or self._is_busy()
        # The work above may have committed transactions.
        return not is_busy and not self._are_companions_busy(until_idle)

    def _keep_workers(self, is_needed: bool) -> None:
        if self._is_first_round:
            self._background.recover()
            self._is_first_round = False
        if not is_needed and not len(self._workers):
            return
        died = self._workers.keep_up(self._background.recover)
        self._update(workers_died=self._status.workers_died + died)

    def _are_companions_busy(self, until_idle: bool) -> bool:
        """Starts the companions that are needed. True if one is busy."""
        busy = [each.is_busy(until_idle) for each in self._companions]
        died = sum(each.keep_up(until_idle) for each in self._companions)
        pending = sum(each.work.pending for each in self._companions)
        self._update(exports=pending, workers_died=self._status.workers_died + died)
        for work in (each.work for each in self._companions):
            for problem in work.problems if until_idle and not work.is_busy else ():
                if problem not in self._status.problems:
                    self._add_problem(problem)
        return any(busy)

    def _is_busy(self) -> bool:
        jobs = self._instance.jobs
        counts = {name.value: jobs.queue(name).counts() for name in jobs.queues}
        self._update(
            waiting={name: c.visible + c.delayed for name, c in counts.items()},
            delayed={name: c.delayed for name, c in counts.items()},
            running={name: c.in_flight for name, c in counts.items()},
            dead_letters=max(0, sum(c.dead for c in counts.values()) - self._dead_before),
        )
        return any(c.unfinished for c in counts.values())

    def _create_work(self, is_final: bool) -> bool:
        """Runs the operations that are due, or every one that may find work. True if one does."""
        result = False
        for operation in (each for system in systems() for each in system.operations):
            is_due = self._has_passed(self._done_at, operation.run, operation.period_seconds)
            if is_due or is_final:
                result |= self._operate(operation)
        for ref in self._instance.tables.index.list():
            with self._problems_logged(f"table {ref.name}"):
                result |= self._maintain_table(ref, is_final)
        if self._is_due(self._done_at, "deletions") or is_final:
            result |= self._finish_deletions()
        if self._is_due(self._done_at, "housekeeping"):
            self._keep_house()
        return result

    def _keep_house(self) -> None:
        instance = self._instance
        for ref in instance.tables.index.list():
            with self._problems_logged(f"table {ref.name}: orphans"):
                run_orphan_collection(instance, ref)
        sweep_abandoned(instance)
        before_ms = instance.clock() - instance.properties().get(TRACKER_DAYS) * DAY_MS
        instance.jobs.tracker.remove_before(before_ms)
        instance.jobs.tasks.remove_before(before_ms)
        instance.jobs.file_requests().remove_before(before_ms)
        remove_old_queries(instance)

    def _operate(self, operation: Operation) -> bool:
        # A run until no work is left ends even if an operation is due again before its end.
        did_anything, problems = load(operation.run)(self._instance, self._due_ms)
        for problem in problems:
            self._add_problem(problem)
        return bool(did_anything)

    def _finish_deletions(self) -> bool:
        # A worker may still write to the table's folder. The next period retries.
        with self._problems_logged("deletion of tables"):
            return finish_deletions(self._instance) > 0
        return False

    def _maintain_table(self, ref: TableRef, is_final: bool) -> bool:
        progress = self._tables.setdefault(ref.id, _TableProgress())
        with self._instance.tables.state(ref.id).reading() as state:
            number = state.number
        result = False
        is_due = is_final or self._are_jobs_due(progress)
        if ref.online and (number != progress.examined_number or is_due):
            progress.examined_number = number
            result = self._split_or_compact(ref, progress, number, is_due)
        if self._is_due(progress.done_at, "collection") or is_final:
            collected = run_garbage_collection(self._instance, ref).files
            self._update(files_collected=self._status.files_collected + collected)
        if self._is_due(progress.done_at, "snapshot"):
            snapshot_table(self._instance, ref)
        return result

    def _are_jobs_due(self, progress: _TableProgress) -> bool:
        due = [self._is_due(progress.done_at, name) for name in ("compaction", "splitting")]
        return any(due)

    def _split_or_compact(
        self, ref: TableRef, progress: _TableProgress, number: int, is_due: bool
    ) -> bool:
        splitting = QueueName.SPLITTING.value
        if self._status.waiting.get(splitting) or self._status.running.get(splitting):
            # Repeat after the splits.
            progress.examined_number = -1
            return True
        splits = send_splits(self._instance, ref, progress.splits_sent, number, is_due)
        if splits:
            # After the splits, smaller jobs on the new leaves run in parallel.
            self._update(splits_sent=self._status.splits_sent + splits)
            progress.examined_number = -1
            return True
        jobs = create_table_jobs(self._instance, ref)
        self._update(compactions_created=self._status.compactions_created + jobs.created)
        return jobs.did_anything

    def _is_due(self, done_at: dict[str, float], operation: str) -> bool:
        """Returns whether the operation's period is over, and then begins its next one."""
        period, unit_seconds = _PERIODS[operation]
        seconds = self._instance.properties().get(period) * unit_seconds
        return self._has_passed(done_at, operation, seconds)

    @staticmethod
    def _has_passed(done_at: dict[str, float], operation: str, seconds: float) -> bool:
        now = time.monotonic()
        if now - done_at.get(operation, -math.inf) < seconds:
            return False
        done_at[operation] = now
        return True

    @contextmanager
    def _problems_logged(self, where: str) -> Iterator[None]:
        try:
            yield
        except SleeperError as error:
            self._add_problem(f"{where}: {error}")

    def _add_problem(self, text: str) -> None:
        logger.warning("%s", text)
        if text not in self._status.problems:
            self._update(problems=(*self._status.problems, text)[-_PROBLEMS_MAX:])

    def _update(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
