"""Tasks are started in proportion to the queue's length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueCounts, QueueName
from sleeper.jobs.tracker import tasks_to_start
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, metrics_in
from tests.handlers.fake_launcher import FakeLauncher
from tests.ports import with_ports


@pytest.fixture
def launcher(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakeLauncher:
    fake = FakeLauncher()
    instance_with_launcher = with_ports(instance, jobs={"launcher": lambda kind: fake})
    monkeypatch.setattr(lambda_function, "_opened", lambda where: instance_with_launcher)
    return fake


def start(aws: Lambda, monkeypatch: pytest.MonkeyPatch, kind: str) -> dict[str, int]:
    monkeypatch.setenv("SLEEPER_TASK_KIND", kind)
    return aws.call(functions.start_tasks)


def test_a_task_is_started_for_each_message_up_to_the_maximum(
    aws: Lambda, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.instance.change_properties({"sleeper.compaction.max.concurrent.tasks": "5"})
    aws.instance.jobs.queue(QueueName.COMPACTION).send_all(["{}"] * 3)
    assert start(aws, monkeypatch, "compaction") == {"running": 0, "started": 3, "failures": 0}
    # Asked again before these took anything.
    assert start(aws, monkeypatch, "compaction") == {"running": 3, "started": 0, "failures": 0}
    aws.instance.jobs.queue(QueueName.COMPACTION).send_all(["{}"] * 10)
    assert start(aws, monkeypatch, "compaction") == {"running": 3, "started": 2, "failures": 0}


def test_tasks_of_messages_in_flight_are_not_counted_as_idle(
    aws: Lambda, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = aws.instance.jobs.queue(QueueName.INGEST)
    queue.send_all(["{}"] * 3)
    queue.receive(2)
    launcher.tasks = 2
    assert start(aws, monkeypatch, "ingest")["started"] == 1


def test_nothing_is_started_while_no_message_waits(
    aws: Lambda, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = aws.instance.jobs.queue(QueueName.INGEST)
    queue.send("{}")
    queue.receive()
    assert start(aws, monkeypatch, "ingest") == {"running": 0, "started": 0, "failures": 0}


def test_the_number_of_tasks_is_reported_while_messages_wait(
    aws: Lambda,
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = aws.instance.jobs.queue(QueueName.INGEST)
    start(aws, monkeypatch, "ingest")
    assert metrics_in(capsys.readouterr().out) == []
    queue.send_all(["{}"] * 2)
    start(aws, monkeypatch, "ingest")
    queue.receive(2)
    start(aws, monkeypatch, "ingest")
    measurements = metrics_in(capsys.readouterr().out)
    assert [(m["TasksRunning"], m["TasksStarted"]) for m in measurements] == [
        ([2.0], [2.0]),
        ([2.0], [0.0]),
    ]
    assert {(m["instance"], m["kind"]) for m in measurements} == {("test", "ingest")}


def test_a_lack_of_capacity_is_reported_and_not_a_failure(
    aws: Lambda,
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launcher.room = 2
    aws.instance.jobs.queue(QueueName.INGEST).send_all(["{}"] * 5)
    assert start(aws, monkeypatch, "ingest") == {"running": 0, "started": 2, "failures": 1}
    (failed,) = (m for m in metrics_in(capsys.readouterr().out) if m["kind"] == "instance")
    assert failed["TaskStartsFailed"] == [1.0]


def test_a_local_instance_starts_no_tasks(aws: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.instance.jobs.queue(QueueName.INGEST).send("{}")
    with pytest.raises(InvalidRequestError, match="`sleeper run` has its own workers"):
        start(aws, monkeypatch, "ingest")
    with pytest.raises(InvalidRequestError, match="no tasks of kind query"):
        start(aws, monkeypatch, JobKind.QUERY.value)


@given(st.integers(0, 500), st.integers(0, 300), st.integers(0, 400), st.integers(0, 300))
def test_tasks_cover_all_messages_up_to_the_maximum(
    visible: int, in_flight: int, running: int, running_max: int
) -> None:
    more = tasks_to_start(QueueCounts(visible, in_flight, 7, 7), running, running_max)
    assert more >= 0
    assert more == 0 or running + more <= running_max
    assert running + more >= min(visible + in_flight, running_max)
    assert running + more <= max(running, visible + in_flight)
