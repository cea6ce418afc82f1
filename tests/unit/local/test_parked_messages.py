"""A clock that was ahead for a while does not park messages until then."""

from pathlib import Path

import pytest

from sleeper.jobs.queue import QueueSettings
from sleeper.local.folder import create_instance_folder
from sleeper.local.queue import LocalQueue
from tests.clock import FakeClock

_DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("delay_seconds", [0, 60])
def test_messages_of_an_hour_that_has_not_come_are_received(
    tmp_path: Path, delay_seconds: int
) -> None:
    clock = FakeClock()
    database = create_instance_folder(tmp_path / "instance", "test").database
    queue = LocalQueue(database, "jobs", QueueSettings(30, 3), clock)
    before = clock.now_ms
    clock.now_ms += 20 * _DAY_MS
    queue.send("released")
    (released,) = queue.receive()
    queue.send("sent", delay_seconds)
    queue.release(released.receipt, delay_seconds)
    clock.now_ms = before
    queue.send("delayed", 60)
    assert {message.body for message in queue.receive(10)} == {"sent", "released"}
    clock.now_ms += 60_000
    assert "delayed" in {message.body for message in queue.receive(10)}
    database.close()
