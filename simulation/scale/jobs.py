"""Ingests and compactions: jobs of tasks, their commits, and the committer."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from simulation.scale.functions import Source
from simulation.scale.leaves import Jobs
from simulation.scale.ledger import SQS_REQUESTS, WRITE_UNITS
from simulation.scale.log import APPEND_SECONDS, READ_SECONDS
from simulation.scale.queue import Message
from simulation.scale.tasks import Fleet
from simulation.scale.timeline import Action
from simulation.scale.work import Work
from simulation.scale.world import Table, World
from sleeper.properties.instance import COMMIT_BACKLOG_MAX
from sleeper.properties.table import (
    COMPACTION_COMMIT_ASYNC,
    COMPACTION_JOBS_MAX,
    INGEST_COMMIT_ASYNC,
)

_ROWS_SECOND = 1_000_000
"""Rows that a task merges in a second."""

_FILES_MEASURED = 12
_PLAN_SECONDS = 17e-6
"""Planning a job: ARCHITECTURE.md, "Log and state"."""

_MESSAGES_MAX = 2_000
"""Jobs of a round are at most so many messages, each of several jobs."""

_BATCH = 10
_TRACKED = 100
_TRACKING_UNITS = 3.5
"""An item of the tracker, its entry in an index, and a quarter of a KiB in the log."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of an ingest, or of compaction `jobs`."""

    table: Table
    jobs: Jobs | None


class JobRunner:
    """The ingests and compactions of all tables."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next_table = count()
        self.ingested = 0
        self.fleets = {
            "ingest": Fleet(world, "ingest", self._run_ingest),
            "compaction": Fleet(world, "compaction", self._run_compaction),
        }
        Source(
            world.timeline,
            world.functions,
            world.queues["commits"],
            world.ledger,
            self._commit_batch,
        )

    def send_ingests(self) -> None:
        """Sends the ingests of the load, at random times, to one table after another."""
        world = self._world
        if not world.load.ingests_second:
            return
        rate = world.load.ingests_second / world.load.cohort

        def send() -> None:
            table = world.tables[next(self._next_table) % len(world.tables)]
            world.queues["ingest"].send(table, weight=world.load.cohort)
            world.timeline.after(world.random.expovariate(rate), send)

        world.timeline.after(world.random.expovariate(rate), send)

    def create_jobs(self, table: Table) -> Work:
        """Creates the compaction jobs of a table, unless the committer is behind."""
        world, nothing = self._world, Work(0, {}, {})
        backlog_max: int = world.rules.get(COMMIT_BACKLOG_MAX)
        if world.queues["commits"].counts().unfinished > backlog_max:
            return nothing
        jobs_max = min(world.setting(COMPACTION_JOBS_MAX), self._jobs_in_time())
        created = table.leaves.create_jobs(jobs_max * world.load.cohort)
        if not created:
            return nothing
        size = max(world.load.cohort, -(-sum(each.count for each in created) // _MESSAGES_MAX))
        for jobs in created:
            for start in range(0, jobs.count, size):
                part = Jobs(jobs.inputs, min(size, jobs.count - start))
                world.queues["compaction"].send((table, part), weight=part.count)
        return self._creation_work(sum(each.count for each in created))

    def _jobs_in_time(self) -> int:
        """Returns how many jobs the function creates before its timeout."""
        rule = self._world.queues["compaction_job_creation"].rule.receiver
        assert rule is not None
        jobs = self._world.rules.jobs_per_dispatch
        return int(rule.timeout_seconds / self._creation_work(jobs).seconds(rule.memory_mb) * jobs)

    def _creation_work(self, jobs: int) -> Work:
        """Returns the work of so many jobs, of as many tables as the cohort has."""
        cohort = self._world.load.cohort
        first = self._world.works["job_creation"].scaled(cohort)
        more = max(0, jobs - cohort)
        requests = {
            "sqs.SendMessageBatch": more / _BATCH,
            "dynamodb.TransactWriteItems": more / _TRACKED,
        }
        prices = {
            SQS_REQUESTS: more / _BATCH,
            WRITE_UNITS: _TRACKING_UNITS * more,
        }
        return first.plus(Work(more * _PLAN_SECONDS, requests, prices))

    def _run_ingest(self, message: Message, done: Callable[[bool], object]) -> None:
        world, table = self._world, message.content
        work = world.works["ingest"]
        world.ledger.add("ingest jobs", work.prices, message.weight)
        rows = world.load.rows * world.load.leaves
        seconds = work.seconds() - READ_SECONDS - APPEND_SECONDS + rows / _ROWS_SECOND
        is_async = world.setting(INGEST_COMMIT_ASYNC)

        def commit() -> None:
            if is_async:
                self._send_commit(Commit(table, None), message.weight)
                done(True)
            else:
                self._commit_directly(Commit(table, None), message.weight, done)

        world.timeline.after(seconds * message.weight, commit)

    def _run_compaction(self, message: Message, done: Callable[[bool], object]) -> None:
        world = self._world
        table, jobs = message.content
        work = world.works["compaction"].scaled(len(jobs.inputs) / _FILES_MEASURED)
        world.ledger.add("compaction jobs", work.prices, message.weight)
        seconds = self._compaction_seconds(work) + sum(jobs.inputs) / _ROWS_SECOND
        is_async = world.setting(COMPACTION_COMMIT_ASYNC)

        def commit() -> None:
            if is_async:
                self._send_commit(Commit(table, jobs), message.weight)
                done(True)
            else:
                self._commit_directly(Commit(table, jobs), message.weight, done)

        world.timeline.after(seconds * message.weight, commit)

    def _compaction_seconds(self, work: Work) -> float:
        """Returns the duration of a compaction, which reads its inputs in parallel."""
        reads = work.requests["s3.GET"] * (1 - 1 / self._world.rules.threads_reading)
        return work.plus(Work(0, {"s3.GET": -reads}, {})).seconds()

    def _send_commit(self, commit: Commit, weight: int) -> None:
        self._world.queues["commits"].send(commit, commit.table.number, weight)

    def _commit_directly(self, commit: Commit, weight: int, done: Callable[[bool], object]) -> None:
        world = self._world
        units = self._units(commit, 1)
        wait = world.log_table.wait(units * weight)

        def settle(is_done: bool) -> None:
            if is_done:
                self._apply(commit, weight)
            done(is_done)

        def append() -> None:
            if world.load.cohort == 1:
                commit.table.log.commit(units, settle)
            else:
                # Tables of their own: no commit meets another.
                seconds = weight * (READ_SECONDS + APPEND_SECONDS)
                world.timeline.after(seconds, lambda: settle(True))

        world.timeline.after(wait, append)

    def _commit_batch(self, messages: list[Message]) -> tuple[float, Action]:
        """Commits a batch as the committer's function does, one entry for each table."""
        world = self._world
        weight = sum(message.weight for message in messages)
        tables = {message.group for message in messages}
        work = self._batch_work(weight, is_one_table=len(tables) == 1 and world.load.cohort == 1)
        wait = 0.0
        for number in sorted(tables):
            own = [message for message in messages if message.group == number]
            units = self._batch_units(own)
            wait = max(wait, own[0].content.table.log.append(units), world.log_table.wait(units))
        rule = world.queues["commits"].rule.receiver
        assert rule is not None
        world.ledger.add(rule.name, work.prices)

        def apply() -> None:
            for message in messages:
                self._apply(message.content, message.weight)

        return work.seconds(rule.memory_mb) + wait, apply

    def _batch_work(self, weight: int, is_one_table: bool) -> Work:
        works = self._world.works
        if is_one_table:
            one, ten = works["commit of 1"], works["commit of 10, one table"]
            return one.mixed(ten, (min(weight, _BATCH) - 1) / (_BATCH - 1)).scaled(
                max(1.0, weight / _BATCH)
            )
        batches = max(1.0, weight / _BATCH)
        # The copies of a batch's tables are opened in parallel.
        opened = self._world.open_copy()
        return works["commit of 10, ten tables"].plus(opened).scaled(batches)

    def _batch_units(self, messages: list[Message]) -> float:
        """Returns the write units of the entries of one table, or of the tables of a cohort."""
        weight = sum(message.weight for message in messages)
        if self._world.load.cohort > 1:
            return float(weight * self._units(messages[0].content, 1))
        whole, rest = divmod(weight, _BATCH)
        units = whole * self._units(messages[0].content, _BATCH)
        return float(units + (self._units(messages[0].content, rest) if rest else 0))

    def _units(self, commit: Commit, commits: int) -> int:
        if commit.jobs is None:
            return self._world.add_files_units(commits)
        return self._world.compaction_units(len(commit.jobs.inputs), commits)

    def _apply(self, commit: Commit, weight: int) -> None:
        self._world.count_commit(weight)
        if commit.jobs is None:
            self.ingested += weight
            commit.table.leaves.add_file(self._world.load.rows)
        else:
            commit.table.leaves.finish(commit.jobs)
