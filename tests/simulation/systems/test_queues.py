"""What was accepted waits until it is done, messages die at their limit, holders are left alone."""

from collections.abc import Sequence
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from simulation.checks.queues import check_queues
from simulation.checks.takeovers import Takeovers, observed_holds
from simulation.checks.violation import Violation
from simulation.faults import MetFaults
from simulation.scheduling.scheduler import Machine, Process
from simulation.systems.receiver import Received, Receiver
from simulation.workload.ingests import make_ingest, to_arrow
from sleeper.ingest.service import submit_ingest
from sleeper.jobs.queue import QueueName, QueueSettings
from sleeper.local.queue import LocalQueue
from tests.simulation.systems.conftest import SystemDriver


def _submit(driver: SystemDriver) -> None:
    ingest, schema = make_ingest(driver.client, driver.table)
    path = driver.folder / "rows.parquet"
    pq.write_table(to_arrow(ingest.rows, schema), path)
    submit_ingest(driver.instance, "rows", [str(path)], ingest.id)
    ingest.accept()


def test_a_job_whose_message_was_deleted_is_found(driver: SystemDriver) -> None:
    _submit(driver)
    check_queues(driver.look())
    queue = driver.instance.jobs.queue(QueueName.INGEST)
    (message,) = queue.receive()
    check_queues(driver.look())
    queue.delete(message.receipt)
    with pytest.raises(Violation, match="accepted jobs are done"):
        check_queues(driver.look())


def test_a_message_that_dies_late_is_found(
    driver: SystemDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = driver.instance.jobs.queue(QueueName.INGEST)
    assert isinstance(queue, LocalQueue)
    queue.send("wrong")
    for _ in range(queue.settings.receives_max):
        (message,) = queue.receive()
        queue.release(message.receipt)
    assert queue.receive() == ()
    check_queues(driver.look())
    monkeypatch.setattr(
        "sleeper.local.instance._queue_settings", lambda *_: QueueSettings(receives_max=7)
    )
    with pytest.raises(Violation, match="a message dies at its last receive"):
        check_queues(driver.look())


def test_a_file_that_the_batcher_has_forgotten_is_found(driver: SystemDriver) -> None:
    driver.journal.files["forgotten.parquet"] = []
    driver.journal.accepted_files["forgotten.parquet"] = driver.table.id
    check_queues(driver.look(is_end=False))
    with pytest.raises(Violation, match="a file of the batcher is in a job"):
        check_queues(driver.look())


def test_an_export_after_a_later_one_of_its_key_is_a_problem() -> None:
    receiver = Receiver()
    first, second = Received((1,), ("a",), 5), Received((1,), ("b",), 6)
    for each in (first, second, first):
        receiver.offer([each])
        receiver.take(0, [each])
    assert not receiver.problems
    receiver.offer([Received((1,), ("c",), 4)])
    assert receiver.problems == ["key (1,): 4 comes after a later one"]


class _Scheduler:
    """The calling thread is that of a process."""

    def __init__(self) -> None:
        self.process = Process("first", Machine())

    def find_current(self) -> Any:
        return self


class _World:
    def __init__(self) -> None:
        self.scheduler = _Scheduler()
        self.met_at = ""
        self.beside = 0

    def count_met_at(self, _process: Process, services: Sequence[str]) -> int:
        return int(self.met_at in services)

    def count_met(self, _process: Process) -> MetFaults:
        return MetFaults(self.beside, self.beside)


@pytest.mark.parametrize(
    ("service", "beside", "is_explained"),
    [("state", 1, True), ("queue", 0, True), ("state", 0, False)],
)
def test_a_message_is_taken_from_a_live_process_only_after_a_fault(
    driver: SystemDriver, service: str, beside: int, is_explained: bool
) -> None:
    world = _World()
    takeovers = Takeovers(cast(Any, world))
    queue = driver.instance.jobs.queue(QueueName.INGEST)
    with observed_holds(takeovers):
        queue.send("body")
        (message,) = queue.receive()
        queue.release(message.receipt)
        (message,) = queue.receive()
        takeovers.check()
        world.met_at, world.beside = service, beside
        queue.extend(message.receipt, 0)
        world.scheduler.process = Process("second", Machine())
        assert queue.receive()
    if is_explained:
        takeovers.check()
        return
    with pytest.raises(Violation, match="a live process keeps what it holds"):
        takeovers.check()
