"""An operator of the workload: unreadable messages go, and others are tried again."""

from pathlib import Path

from simulation.model.journal import Journal
from simulation.workload.dead_letters import solve_dead_letters
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock


def test_unreadable_letters_are_deleted_and_others_redriven(tmp_path: Path) -> None:
    clock = FakeClock()
    create_local_instance(tmp_path / "instance", "x", {"sleeper.queue.receives.max": "1"})
    instance = open_local_instance(tmp_path / "instance", clock)
    queue = instance.jobs.queue(QueueName.INGEST)
    for body in ("no job", '{"id": "job"}'):
        queue.send(body)
        for message in queue.receive():
            queue.release(message.receipt)
    clock.now_ms += 60_000
    letters = instance.jobs.dead_letters(QueueName.INGEST)
    assert {each.body for each in letters.list()} == {"no job", '{"id": "job"}'}
    solve_dead_letters(instance, Journal(unreadable={"no job"}))
    assert not letters.list()
    assert [each.body for each in queue.receive(10)] == ['{"id": "job"}']
    instance.close()
