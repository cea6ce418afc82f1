"""Large tables of a stash, which Spark writes. The tests do its tasks in its place."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.bulk_import import start as bulk_import_start
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.spark_platform import RunOutcome, RunState
from sleeper.opening import open_instance
from sleeper.stash import Stash, control
from sleeper.stash.control import control_stashes, recover_stash
from sleeper.stash.record import StashRecord
from sleeper.stash.spark_table import spark_bytes
from sleeper.stash.task import do_task
from sleeper.tables import TableId
from tests.handlers.fake_platform import FakePlatform
from tests.unit.stash.conftest import SCHEMA, Stasher
from tests.unit.stash.test_recovery import run_workers, start
from tests.unit.stash.test_run import rows


@pytest.fixture
def stasher(tmp_path: Path) -> Iterator[Stasher]:
    stasher = Stasher(tmp_path, **{"sleeper.stash.spark.bytes.min": "800"})
    with stasher.instance:
        large = stasher.instance.create_table("large", SCHEMA, split_points=[10, 20])
        large.ingest(rows(*range(30)))
        large.ingest(rows(*range(30, 33)))
        stasher.instance.create_table("small", SCHEMA).ingest(rows(1))
        stasher.instance.create_table("empty", SCHEMA)
        yield stasher


class Spark:
    """Stands for a process with Spark. The first ones fail after they did some tasks."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails
        self.runs = 0

    def run_command(self, command: tuple[str, ...]) -> RunOutcome:
        assert command[1:4] == ("-P", "-m", "sleeper.stash.spark.job")
        self.runs += 1
        is_failure = self.runs <= self.fails
        self.do_tasks(command[4:], 1 if is_failure else None)
        return RunOutcome(RunState.FAILED if is_failure else RunState.SUCCEEDED, "no memory")

    @staticmethod
    def do_tasks(arguments: tuple[str, ...], count: int | None = None) -> None:
        where, stash_option, key, table_option, table_id = arguments
        assert (stash_option, table_option) == ("--stash", "--table")
        instance = open_instance(where)
        digest, _, name = key.partition("/")
        record = StashRecord(instance.storage.root, digest, name)
        for number in record.progress()[TableId(table_id)].unfinished[:count]:
            do_task(instance, record, TableId(table_id), number)
        instance.close()


def messages(stasher: Stasher) -> list[dict[str, object]]:
    """The messages in the queue, which stay there."""
    queue = stasher.instance._ports.jobs.queue(QueueName.STASH)
    received: list[Message] = []
    while found := queue.receive():
        received += found
    for message in received:
        queue.release(message.receipt)
    return [json.loads(message.body) for message in received]


def test_a_large_table_is_one_message_and_repeated_until_all_tasks_are_done(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = start(stasher, submitted=True)
    control_stashes(stasher.ports())
    ids = {version.table: version.id for version in record.versions() or ()}
    sent = messages(stasher)
    assert [each for each in sent if each["tableId"] == ids["large"]] == [
        {"stash": record.key, "tableId": ids["large"]}
    ]
    assert [each["task"] for each in sent if each["tableId"] == ids["small"]] == [0]
    spark = Spark(fails=1)
    monkeypatch.setattr(bulk_import_start, "run_command", spark.run_command)
    with pytest.raises(UnavailableError, match="no memory"):
        run_workers(stasher)
    assert len(record.progress()[ids["large"]].unfinished) == 1
    assert recover_stash(stasher.ports(), record) >= 1
    run_workers(stasher, times=2)
    assert spark.runs == 2
    control_stashes(stasher.ports())
    stash = Stash.open(stasher.destination)
    assert [d["k"] for d in stash.scan("large")] == list(range(33))
    assert (len(stash.splits("large")), stash.tables()) == (3, ["empty", "large", "small"])


class OnPlatform:
    """The instance with a platform that runs Spark."""

    def __init__(self, stasher: Stasher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.platform = FakePlatform()
        self._stasher = stasher
        monkeypatch.setattr(control, "spark_bytes", lambda _: 800)

    @property
    def ports(self) -> Instance:
        ports = self._stasher.ports()
        return replace(ports, jobs=replace(ports.jobs, spark_platform=lambda _: self.platform))


def test_a_platform_runs_spark_again_and_then_the_queue_has_the_tasks(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark_bytes(stasher.ports()) == 800
    on = OnPlatform(stasher, monkeypatch)
    assert spark_bytes(on.ports) == 0  # deployed without the platform
    record = start(stasher, submitted=True)
    for _ in range(3):
        control_stashes(on.ports)
    (job,) = on.platform.runs.values()
    Spark.do_tasks(job.arguments, 1)
    for runs in (2, 3, 3):
        on.platform.end(RunState.FAILED, "out of memory")
        control_stashes(on.ports)
        assert len(on.platform.runs) == runs
    assert "out of memory" in str(record.problems(record.progress()))
    # One of the small table, and the other one of the large table.
    assert [each["task"] for each in messages(stasher)] == [0, 1]
    run_workers(stasher)
    control_stashes(on.ports)
    assert [d["k"] for d in Stash.open(stasher.destination).scan("large")] == list(range(33))


def test_a_run_that_was_not_recorded_is_found_again(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = OnPlatform(stasher, monkeypatch)
    record = start(stasher, submitted=True)
    control_stashes(on.ports)
    assert on.platform.request_count == 0
    with monkeypatch.context() as patched:
        patched.setattr(StashRecord, "record_spark_run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            control_stashes(on.ports)
    control_stashes(on.ports)
    assert recover_stash(on.ports, record) > 1
    assert (on.platform.request_count, len(on.platform.runs)) == (2, 1)
    (job,) = on.platform.runs.values()
    Spark.do_tasks(job.arguments)
    on.platform.end(RunState.SUCCEEDED)
    run_workers(stasher)
    control_stashes(on.ports)
    assert not record.is_running()
    assert len(on.platform.runs) == 1
