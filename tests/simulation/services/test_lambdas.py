"""The real handlers of an instance over the simulated services, started as AWS starts them."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from simulation.scheduling.scheduler import Killed
from simulation.services.deployment import deploy
from simulation.services.lambdas import Function, Functions, Source
from simulation.services.world import Services
from sleeper.aws.instance import STATE_FOLDER_VARIABLE, open_aws_instance
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.workers.worker import Worker
from tests.simulation.services.worlds import World

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "valueFields": [{"name": "amount", "type": "LongType"}],
}
PREFIX = "sleeper-simulated-"


@dataclass
class Account:
    """An instance with its functions."""

    world: World
    services: Services
    instance: Instance
    functions: Functions
    started: Counter[str]

    def pass_minutes(self, minutes: int) -> None:
        """Passes time, and runs what becomes due in it, until all queues are empty."""
        for _ in range(minutes):
            self.world.pass_seconds(60)
            while invocation := self.functions.take_invocation():
                self.functions.run(invocation, self.instance)
                self.started[invocation.rule.name] += 1
            while sum([self.deliver(source) for source in self.functions.sources]):
                pass
            self.run_tasks()

    def deliver(self, source: Source) -> int:
        count = self.functions.deliver_once(source, self.instance)
        self.started[source.queue] += bool(count)
        return count

    def run_tasks(self) -> None:
        tasks = self.services.control.tasks
        while tasks.pending:
            task = tasks.pending.popleft()
            self.started[f"{self.functions.task_kind(task).value} task"] += 1
            worker = Worker(self.instance, new_task_id(), threading.Event())
            while worker.run_one():
                pass
            tasks.stop(task.arn)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    world = World()
    services = world.services(tmp_path / "objects")
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
    with services.install():
        monkeypatch.setenv(STATE_FOLDER_VARIABLE, str(tmp_path / "state"))
        deploy(services, "simulated", {"sleeper.engine.threads": "1"})
        functions = Functions(services, PREFIX, world.limited)
        with closing(open_aws_instance("simulated", world.now_ms)) as instance:
            yield Account(world, services, instance, functions, Counter())


def test_a_job_is_run_by_a_task_and_committed_by_the_committer(account: Account) -> None:
    opened = sleeper.Instance(account.instance)
    values = {"sleeper.table.ingest.files.commit.async": "true"}
    table = opened.create_table("t", SCHEMA, values)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": ["a", "b"], "amount": [1, 2]}), sink)
    bucket = account.services.s3.bucket("sources")
    bucket.put("a.parquet", bytes(sink.getvalue()), account.world.now)
    body = '{"id": "job", "tableName": "t", "files": ["sources/a.parquet"]}'
    account.instance.jobs.queue(QueueName.INGEST).send(body)
    account.pass_minutes(3)
    assert table.query().to_arrow()["amount"].to_pylist() == [1, 2]
    assert account.started["ingest task"] == 1
    assert account.started["transaction-commits.fifo"] == 1
    assert account.started["compaction-job-creation.fifo"] == 3
    job = account.instance.jobs.tracker.recent(JobKind.INGEST)[0]
    assert job.job_id == "job"
    account.pass_minutes(58)
    assert account.started["state-snapshots"] == account.started["state-snapshots.fifo"] == 1


def test_rules_that_are_switched_off_start_nothing(account: Account) -> None:
    for name in account.services.control.rules:
        account.services.client("events").disable_rule(Name=name)
    account.pass_minutes(2)
    assert not any(account.started.values())


@pytest.fixture
def batches(account: Account, monkeypatch: pytest.MonkeyPatch) -> tuple[Source, list[list[str]]]:
    """A source of a FIFO queue, and the bodies of its runs.

    Body `bad` fails, `broken` all, and with `slow` the run makes its call after its limit.
    """
    (source,) = (s for s in account.functions.sources if s.queue == "transaction-commits.fifo")
    runs: list[list[str]] = []

    def run(_function: Function, _instance: object, event: Mapping[str, Any], _now: object) -> Any:
        runs.append([record["body"] for record in event["Records"]])
        if "slow" in runs[-1]:
            account.world.pass_seconds(source.function.timeout_seconds)
            account.instance.jobs.queue(QueueName.COMMITS).counts()
        if "broken" in runs[-1]:
            raise ZeroDivisionError
        failed = [r["messageId"] for r in event["Records"] if r["body"] == "bad"]
        return {"batchItemFailures": [{"itemIdentifier": each} for each in failed]}

    monkeypatch.setattr(Function, "run", run)
    return source, runs


def test_failed_messages_of_a_batch_come_again(
    account: Account, batches: tuple[Source, list[list[str]]]
) -> None:
    source, runs = batches
    queue = account.instance.jobs.queue(QueueName.COMMITS)
    queue.send_all(["good", "bad", "later"], ["g", "g", "h"])
    assert account.deliver(source) == 3
    assert account.deliver(source) == 0
    account.world.pass_seconds(360)
    assert account.deliver(source) == 1
    assert runs == [["good", "bad", "later"], ["bad"]]


def test_a_function_that_ends_with_an_error_keeps_its_messages_in_flight(
    account: Account, batches: tuple[Source, list[list[str]]]
) -> None:
    source, runs = batches
    queue = account.instance.jobs.queue(QueueName.COMMITS)
    queue.send("broken", group="g")
    with pytest.raises(ZeroDivisionError):
        account.deliver(source)
    assert queue.counts().in_flight == 1
    account.world.pass_seconds(360)
    with pytest.raises(ZeroDivisionError):
        account.deliver(source)
    assert (len(runs), source.running) == (2, 0)


def test_a_run_ends_with_its_container_at_its_time_limit(
    account: Account, batches: tuple[Source, list[list[str]]]
) -> None:
    source, runs = batches
    account.instance.jobs.queue(QueueName.COMMITS).send("slow", group="g")
    for count in (1, 2):
        with pytest.raises(Killed):
            account.deliver(source)
        assert (len(runs), source.running, account.deliver(source)) == (count, 0, 0)
        account.world.pass_seconds(360)


@pytest.fixture
def invocations(account: Account, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Minutes at which the function of state snapshots fails, whose rule is the only one."""
    minutes: list[int] = []
    start_ms = account.world.now
    account.functions.rules = [r for r in account.functions.rules if r.name == "state-snapshots"]

    def run(*_: object) -> None:
        minutes.append((account.world.now - start_ms) // 60_000)
        raise ZeroDivisionError

    monkeypatch.setattr(Function, "run", run)
    return minutes


def run_due(account: Account, minutes: int) -> None:
    """Runs what is due in each of the minutes."""
    for _ in range(minutes):
        account.world.pass_seconds(60)
        while invocation := account.functions.take_invocation():
            with pytest.raises(ZeroDivisionError):
                account.functions.run(invocation, account.instance)


def test_lambda_repeats_a_failed_invocation_twice(account: Account, invocations: list[int]) -> None:
    run_due(account, 119)
    assert invocations == [60, 61, 63]
    run_due(account, 2)
    assert invocations[3:] == [120, 121]


def test_lambda_runs_some_invocations_twice_and_drops_old_ones(
    account: Account, invocations: list[int]
) -> None:
    account.world.chosen = lambda probability: probability == 0.01
    run_due(account, 60)
    assert invocations == [60, 60]
    account.world.pass_seconds(2 * 3600)
    account.world.chosen = lambda _probability: False
    run_due(account, 1)
    assert invocations == [60, 60, 181]


def test_a_source_has_a_maximum_of_concurrent_runs(
    account: Account, batches: tuple[Source, list[list[str]]]
) -> None:
    source, _ = batches
    account.instance.jobs.queue(QueueName.COMMITS).send("good", group="g")
    source.running = 10
    assert account.deliver(source) == 0
    source.running = 9
    assert account.deliver(source) == 1
