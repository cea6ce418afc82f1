"""Due runs of adapters are sent, and tasks are started for them."""

import pytest

from sleeper.adapters.definition import Adapter, FilesSource, TableSink
from sleeper.adapters.message import parse_adapter_message
from sleeper.adapters.store import AdapterStore
from sleeper.jobs.queue import QueueName
from sleeper.schedule import make_schedule
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, make_table
from tests.handlers.fake_launcher import FakeLauncher
from tests.ports import with_ports

HOUR_MS = 3_600_000


def add_adapter(aws: Lambda, name: str, sink: str) -> None:
    schedule = make_schedule("1h", aws.instance.clock() - 3 * HOUR_MS // 2)
    adapter = Adapter(name, FilesSource(("rows.csv",)), TableSink(sink), schedule)
    AdapterStore(aws.instance.storage.root).create(adapter)


def test_due_runs_are_sent_and_others_reported(aws: Lambda) -> None:
    make_table(aws.instance, "t")
    assert aws.call(functions.start_adapters) == {"sent": 0, "waiting": 0, "problems": 0}
    add_adapter(aws, "a", "t")
    add_adapter(aws, "b", "t")
    add_adapter(aws, "lost", "gone")
    assert aws.call(functions.start_adapters) == {"sent": 2, "waiting": 0, "problems": 1}
    assert aws.call(functions.start_adapters) == {"sent": 0, "waiting": 0, "problems": 1}
    messages = aws.instance.jobs.queue(QueueName.ADAPTER).receive(10)
    assert [message.group for message in messages] == ["a", "b"]
    assert {parse_adapter_message(message.body).adapter for message in messages} == {"a", "b"}


def test_a_task_is_started_for_each_run(aws: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(aws.instance, "t")
    add_adapter(aws, "a", "t")
    aws.call(functions.start_adapters)
    launcher = FakeLauncher()
    deployed = with_ports(aws.instance, jobs={"launcher": lambda _: launcher})
    monkeypatch.setattr(lambda_function, "_opened", lambda _: deployed)
    monkeypatch.setenv("SLEEPER_TASK_KIND", "adapter")
    started = aws.call(functions.start_tasks)
    assert started == {"running": 0, "started": 1, "failures": 0}
