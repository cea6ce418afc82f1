"""Background work of a local instance: schedules, and a pool of worker processes.

The runner creates work (per table: compaction jobs, splits, collection, snapshots) and sends it to
queues, which workers poll. It keeps no durable state in memory, so after a crash of the runner or a
worker the next run continues. Messages of dead workers return at once, because each records its
receiver's process.
"""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sleeper.compaction.plan import create_table_jobs
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    finish_deletions,
    snapshot_table,
    sweep_abandoned,
)
from sleeper.ingest_batcher.service import create_all_ingest_batches
from sleeper.instance import BackgroundWork, Instance
from sleeper.jobs.queue import QueueName
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
from sleeper.runs.engine import worker_count
from sleeper.splitting.find import send_splits
from sleeper.tables import TableId, TableRef, TableState

_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
# A worker that dies so soon, without a message, does not start properly.
_EARLY_SECONDS = 5.0
_EARLY_DEATHS_MAX = 50
_STOP_SECONDS = 30.0
_TERMINATE_SECONDS = 10.0


class WorkerPool:
    """A number of worker processes of a local instance, which `keep_up` starts."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count
        self._workers: list[_Worker] = []
        self._early_deaths = 0
        self._no_start_before = 0.0

    def __len__(self) -> int:
        return len(self._workers)

    def keep_up(self, release_messages: Callable[[], int]) -> int:
        """Replaces dead workers and returns their number.

        Waits longer each time if workers keep dying at their start, and finally raises
        UnavailableError. `release_messages` returns the messages of dead processes to their
        queues, and returns their number. A worker that dies with a message counts as a failure of
        the message, which becomes a dead letter if it repeats, and not as a failed start.
        """
        died = [w for w in self._workers if w.process.poll() is not None]
        released = release_messages() if died else 0
        self._workers = [w for w in self._workers if w not in died]
        for worker in died:
            worker.let_go()
            if not released:
                self._pause_after(worker)
        if released:
            self._early_deaths = 0
        while len(self._workers) < self._count and time.monotonic() >= self._no_start_before:
            self._workers.append(_start_worker(self._folder))
        return len(died)

    def stop(self) -> None:
        """Stops the workers. Their jobs have a limited time to finish."""
        for worker in self._workers:
            worker.let_go()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))
        self._workers.clear()

    def _pause_after(self, worker: "_Worker") -> None:
        now = time.monotonic()
        self._early_deaths = self._early_deaths + 1 if now - worker.started < _EARLY_SECONDS else 0
        if self._early_deaths >= _EARLY_DEATHS_MAX:
            raise UnavailableError(
                f"{self._early_deaths} workers died at their start, the last with status "
                f"{worker.process.returncode}: see their standard error"
            )
        pause = _FIRST_PAUSE_SECONDS * 2**self._early_deaths if self._early_deaths else 0.0
        self._no_start_before = now + min(pause, _PAUSE_SECONDS_MAX)


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A worker process and its start time."""

    process: subprocess.Popen[bytes]
    started: float

    def let_go(self) -> None:
        """Closes its standard input, which ends it after its current job."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, seconds: float) -> None:
        """Waits, then terminates the process, which returns its job, and finally kills it."""
        if self._has_ended(seconds):
            return
        self.process.terminate()
        if not self._has_ended(_TERMINATE_SECONDS):
            self.process.kill()
            self.process.wait()

    def _has_ended(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _start_worker(folder: Path) -> _Worker:
    command = [sys.executable, "-P", "-m", "sleeper.workers.local_worker", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    return _Worker(process, time.monotonic())


logger = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_UNAVAILABLE_WAIT_SECONDS = 5.0
_DAY_MS = 86_400_000
_MINUTE_SECONDS = 60.0
_BATCH_PERIOD_MINUTES = 1 / 12


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The progress of a run of background work.

    `waiting` and `running` count jobs by queue. `idle` is true if no work is left. `problems`
    has the last 20 distinct warnings, as text.
    """

    waiting: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    workers: int = 0
    workers_died: int = 0
    compactions_created: int = 0
    splits_sent: int = 0
    files_collected: int = 0
    seconds: float = 0.0
    idle: bool = False
    problems: tuple[str, ...] = ()


Listener = Callable[[RunStatus], None]


@dataclass(slots=True)
class _TableMemory:
    """The times of a table's latest operations, and its version then."""

    looked_at: int = -1
    done_at: dict[str, float] = field(default_factory=dict)
    splits_sent_at: dict[str, int] = field(default_factory=dict)


def run_instance(
    instance: Instance,
    until_idle: bool = False,
    workers: int | None = None,
    listener: Listener = lambda _: None,
) -> RunStatus:
    """Runs until interrupted, or with `until_idle` until no work is left.

    InvalidRequestError if the instance is not a local one.
    """
    if instance.background is None:
        raise InvalidRequestError(
            f"instance {instance.where} runs its background work in lambdas and "
            "tasks; `sleeper pause` stops its schedules and `sleeper resume` starts them"
        )
    count = workers or instance.properties().get(LOCAL_WORKERS) or worker_count()
    runner = _Runner(instance, instance.background, listener, count)
    try:
        return runner.run(until_idle)
    finally:
        runner.stop()


class _Runner:
    def __init__(
        self, instance: Instance, background: BackgroundWork, listener: Listener, workers: int
    ) -> None:
        self._instance = instance
        self._background = background
        self._listener = listener
        self._workers = WorkerPool(background.folder, workers)
        self._tables: dict[TableId, _TableMemory] = {}
        self._instance_done_at: dict[str, float] = {}
        self._is_first_round = True
        self._status = RunStatus()
        self._start = time.monotonic()

    def run(self, until_idle: bool) -> RunStatus:
        while True:
            try:
                is_idle = self._round(until_idle)
            except UnavailableError as error:
                if until_idle:
                    raise
                # For example a full disk, which may get space again.
                self._problem(str(error))
                is_idle = False
                time.sleep(_UNAVAILABLE_WAIT_SECONDS)
            self._tell(is_idle)
            if is_idle and until_idle:
                return self._status
            time.sleep(_TICK_SECONDS)

    def _round(self, until_idle: bool) -> bool:
        self._keep_workers()
        was_busy = self._is_busy()
        found_work = self._look_at_everything(is_last_look=until_idle and not was_busy)
        return not was_busy and not found_work and not self._is_busy()

    def stop(self) -> None:
        """Stops the workers. Their jobs have a limited time to finish."""
        self._workers.stop()

    def _keep_workers(self) -> None:
        if self._is_first_round:
            self._background.recover()
            self._is_first_round = False
        died = self._workers.keep_up(self._background.recover)
        self._status = replace(self._status, workers_died=self._status.workers_died + died)

    def _is_busy(self) -> bool:
        counts = {
            name: self._instance.jobs.queue(name).counts() for name in self._instance.jobs.queues
        }
        self._status = replace(
            self._status,
            waiting={n.value: c.visible + c.delayed for n, c in counts.items()},
            running={n.value: c.in_flight for n, c in counts.items()},
        )
        return any(c.unfinished for c in counts.values())

    def _look_at_everything(self, is_last_look: bool) -> bool:
        found = False
        if self._is_due("batches", _BATCH_PERIOD_MINUTES) or is_last_look:
            found |= self._create_batches()
        for ref in self._instance.tables.index.list():
            try:
                found |= self._look_at_table(ref, is_last_look)
            except SleeperError as error:
                self._problem(f"table {ref.name}: {error}")
        if self._is_due("deletions", self._minutes_of(COLLECTION_PERIOD_MINUTES)) or is_last_look:
            found |= self._finish_deletions()
        if self._is_due("housekeeping", self._minutes_of(ORPHAN_PERIOD_HOURS) * 60):
            self._collect_orphans()
            sweep_abandoned(self._instance)
            days = self._instance.properties().get(TRACKER_DAYS)
            before = self._instance.clock() - days * _DAY_MS
            self._instance.jobs.tracker.remove_before(before)
            self._instance.jobs.tasks.remove_before(before)
            self._instance.jobs.file_requests().remove_before(before)
            remove_old_queries(self._instance)
        return found

    def _create_batches(self) -> bool:
        sent, problems = create_all_ingest_batches(self._instance)
        for problem in problems:
            self._problem(problem)
        return sent > 0

    def _collect_orphans(self) -> None:
        for ref in self._instance.tables.index.list():
            try:
                collect_table_orphans(self._instance, ref.name)
            except SleeperError as error:
                self._problem(f"table {ref.name}: orphans: {error}")

    def _finish_deletions(self) -> bool:
        try:
            deleting = self._instance.tables.index.list(TableState.DELETING)
            return bool(deleting) and finish_deletions(self._instance) > 0
        except SleeperError as error:
            # A worker may still write to the table's folder. The next period retries.
            self._problem(f"deletion of tables: {error}")
            return False

    def _look_at_table(self, ref: TableRef, is_last_look: bool) -> bool:
        memory = self._tables.setdefault(ref.id, _TableMemory())
        with self._instance.tables.state(ref.id).reading() as state:
            number = state.number
        has_changed = number != memory.looked_at
        found = False
        if ref.online and (has_changed or is_last_look or self._is_period_over(memory)):
            memory.looked_at = number
            found |= self._shape(ref, memory, number)
        if self._table_is_due(memory, "collection", COLLECTION_PERIOD_MINUTES) or is_last_look:
            collected = collect_table(self._instance, ref.name).files
            self._status = replace(
                self._status, files_collected=self._status.files_collected + collected
            )
        if _is_due(memory.done_at, "orphans", self._minutes_of(ORPHAN_PERIOD_HOURS) * 60):
            collect_table_orphans(self._instance, ref.name)
        if self._table_is_due(memory, "snapshot", SNAPSHOT_PERIOD_MINUTES):
            snapshot_table(self._instance, ref)
        return found

    def _shape(self, ref: TableRef, memory: _TableMemory, number: int) -> bool:
        splitting = QueueName.SPLITTING.value
        if self._status.waiting.get(splitting) or self._status.running.get(splitting):
            # Repeat after the splits.
            memory.looked_at = -1
            return True
        splits = send_splits(self._instance, ref, memory.splits_sent_at, number)
        if splits:
            # After the splits, smaller jobs on the new leaves run in parallel.
            self._status = replace(self._status, splits_sent=self._status.splits_sent + splits)
            memory.looked_at = -1
            return True
        jobs = create_table_jobs(self._instance, ref)
        self._status = replace(
            self._status, compactions_created=self._status.compactions_created + jobs.created
        )
        return jobs.did_anything

    def _is_period_over(self, memory: _TableMemory) -> bool:
        over = self._table_is_due(memory, "creation", COMPACTION_CREATION_PERIOD_MINUTES)
        return self._table_is_due(memory, "splitting", SPLITTING_PERIOD_MINUTES) or over

    def _table_is_due(self, memory: _TableMemory, what: str, period: object) -> bool:
        return _is_due(memory.done_at, what, self._minutes_of(period))

    def _is_due(self, what: str, minutes: float) -> bool:
        return _is_due(self._instance_done_at, what, minutes)

    def _minutes_of(self, period: object) -> float:
        return float(self._instance.properties().get(period))  # type: ignore[arg-type]

    def _problem(self, text: str) -> None:
        logger.warning("%s", text)
        if text not in self._status.problems:
            self._status = replace(self._status, problems=(*self._status.problems, text)[-20:])

    def _tell(self, is_idle: bool) -> None:
        self._status = replace(
            self._status,
            workers=len(self._workers),
            seconds=time.monotonic() - self._start,
            idle=is_idle,
        )
        self._listener(self._status)


def _is_due(done_at: dict[str, float], what: str, minutes: float) -> bool:
    now = time.monotonic()
    if what in done_at and now - done_at[what] < minutes * _MINUTE_SECONDS:
        return False
    done_at[what] = now
    return True
