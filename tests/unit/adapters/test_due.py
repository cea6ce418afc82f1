"""The runs that schedules send."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.adapters.definition import Adapter, DatabaseSource, FilesSource, TableSink
from sleeper.adapters.due import DueReport, schedule_adapter, send_due_runs
from sleeper.adapters.message import (
    AdapterMessage,
    check_workers,
    parse_adapter_message,
    send_run,
)
from sleeper.adapters.properties import ADAPTER_SECRETS
from sleeper.adapters.report import list_adapters
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.aws.sources import AwsSources
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.queue import Message, QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.output import json_rows
from sleeper.schedule import make_schedule
from tests.clock import DAY_MS, START_MS, FakeClock
from tests.ports import with_ports

SCHEMA = '{"rowKeyFields": [{"name": "k", "type": "LongType"}]}'
FIRST, SECOND, THIRD = "20260101T010000Z", "20260101T020000Z", "20260101T030000Z"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        create_table(opened, "sink", SCHEMA)
        yield opened


def add_adapter(instance: Instance, name: str, schedule: str | None, sink: str = "sink") -> Adapter:
    since = None if schedule is None else make_schedule(schedule, instance.clock())
    adapter = Adapter(name, FilesSource(("rows.csv",)), TableSink(sink), since)
    AdapterStore(instance.storage.root).create(adapter)
    return adapter


def job_id(name: str, run_id: str) -> str:
    return Adapter(name, FilesSource(("rows.csv",)), TableSink("sink")).job_id(run_id)


def receive(instance: Instance) -> list[Message]:
    return list(instance.jobs.queue(QueueName.ADAPTER).receive(10))


def run_ids(messages: list[Message]) -> list[str]:
    return [parse_adapter_message(message.body).run_id for message in messages]


def record(instance: Instance, adapter: Adapter, run_id: str, *steps: JobStep) -> None:
    table_id = instance.table(adapter.sink.table).ref.id
    run = JobRunRef(table_id, adapter.job_id(run_id), JobKind.ADAPTER, "r1")
    instance.jobs.tracker.record(*(run.event(step, instance.clock()) for step in steps))


def end_run(instance: Instance, adapter: Adapter, run_id: str, step: JobStep) -> None:
    """Ends the first run in the queue as a worker does."""
    (message,) = receive(instance)
    assert run_ids([message]) == [run_id]
    record(instance, adapter, run_id, JobStep.STARTED, step)
    instance.jobs.queue(QueueName.ADAPTER).delete(message.receipt)


def test_a_due_run_is_sent_once_under_the_id_of_its_time(
    instance: Instance, clock: FakeClock
) -> None:
    add_adapter(instance, "orders", "1h")
    add_adapter(instance, "by-hand", None)
    clock.pass_minutes(59)
    assert send_due_runs(instance) == DueReport()
    clock.pass_minutes(1)
    assert send_due_runs(instance) == DueReport(sent=(job_id("orders", FIRST),))
    assert send_due_runs(instance) == DueReport()
    (message,) = receive(instance)
    assert json.loads(message.body) == {"adapter": "orders", "runId": FIRST}
    assert message.group == "orders"
    (job,) = instance.jobs.tracker.recent(JobKind.ADAPTER)
    assert (job.job_id, job.state.value) == (job_id("orders", FIRST), "created")


def test_downtime_is_caught_up_by_one_run(instance: Instance, clock: FakeClock) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    send_due_runs(instance)
    end_run(instance, adapter, FIRST, JobStep.COMMITTED)
    clock.pass_minutes(60 * 24 * 7 + 20)
    assert send_due_runs(instance).sent == (job_id("orders", "20260108T010000Z"),)
    assert run_ids(receive(instance)) == ["20260108T010000Z"]


def test_a_due_run_waits_for_the_run_before_it(instance: Instance, clock: FakeClock) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    send_due_runs(instance)
    clock.pass_minutes(60)
    assert send_due_runs(instance) == DueReport(waiting=("orders",))
    record(instance, adapter, FIRST, JobStep.STARTED)
    clock.pass_minutes(60)
    assert send_due_runs(instance) == DueReport(waiting=("orders",))
    end_run(instance, adapter, FIRST, JobStep.COMMITTED)
    # The second time passed meanwhile, and only the latest is run.
    assert send_due_runs(instance).sent == (job_id("orders", THIRD),)


@pytest.mark.parametrize("step", [JobStep.FAILED, JobStep.REJECTED])
def test_the_next_run_comes_after_one_that_failed(
    instance: Instance, clock: FakeClock, step: JobStep
) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    send_due_runs(instance)
    end_run(instance, adapter, FIRST, step)
    clock.pass_minutes(60)
    assert send_due_runs(instance).sent == (job_id("orders", SECOND),)


def test_a_due_run_waits_for_the_retries_of_the_run_before_it(
    instance: Instance, clock: FakeClock
) -> None:
    adapter = add_adapter(instance, "orders", "1m")
    clock.pass_minutes(1)
    send_due_runs(instance)
    (message,) = receive(instance)
    record(instance, adapter, "20260101T000100Z", JobStep.STARTED, JobStep.FAILED)
    queue = instance.jobs.queue(QueueName.ADAPTER)
    queue.release(message.receipt, 600)
    for _ in range(9):
        clock.pass_minutes(1)
        assert send_due_runs(instance) == DueReport(waiting=("orders",))
    assert queue.counts().unfinished == 1


@pytest.mark.parametrize(("end", "minutes"), [(None, 24 * 60), (JobStep.FAILED, 60)])
def test_a_lost_run_does_not_stop_its_schedule_while_others_run(
    instance: Instance, clock: FakeClock, end: JobStep | None, minutes: int
) -> None:
    adapter, other = add_adapter(instance, "orders", "1h"), add_adapter(instance, "other", None)
    clock.pass_minutes(60)
    send_due_runs(instance)
    (message,) = receive(instance)
    record(instance, adapter, FIRST, JobStep.STARTED, *([] if end is None else [end]))
    instance.jobs.queue(QueueName.ADAPTER).delete(message.receipt)
    send_run(instance, other)
    clock.pass_minutes(minutes + 1)
    assert len(send_due_runs(instance).sent) == 1


def test_a_dead_letter_without_a_recorded_end_does_not_stop_the_schedule(
    instance: Instance, clock: FakeClock
) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    send_due_runs(instance)
    record(instance, adapter, FIRST, JobStep.STARTED)
    while receive(instance):
        clock.pass_minutes(24 * 60)
    assert len(instance.jobs.dead_letters(QueueName.ADAPTER).list()) == 1
    assert len(send_due_runs(instance).sent) == 1


@pytest.mark.parametrize("minutes_later", [1, 20])
def test_a_process_that_dies_after_sending_sends_the_same_run_again(
    instance: Instance,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    minutes_later: int,
) -> None:
    add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)

    def die(*_: object) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(AdapterStore, "record_due", die)
        assert send_due_runs(instance).problems == ("adapter 'orders': the disk is full",)
    clock.pass_minutes(minutes_later)
    assert send_due_runs(instance).sent == (job_id("orders", FIRST),)
    messages = receive(instance)
    # The queue recognizes a repetition for five minutes, and the id of the run always.
    assert run_ids(messages) == [FIRST] * (1 if minutes_later < 5 else 2)
    assert send_due_runs(instance) == DueReport()


def test_a_run_that_began_is_not_sent_again(instance: Instance, clock: FakeClock) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    record(instance, adapter, FIRST, JobStep.STARTED)
    assert send_due_runs(instance).sent == (job_id("orders", FIRST),)
    assert receive(instance) == []


def test_an_adapter_that_cannot_run_does_not_hinder_the_others(
    instance: Instance, clock: FakeClock, tmp_path: Path
) -> None:
    add_adapter(instance, "a-lost", "1h", sink="gone")
    add_adapter(instance, "b-damaged", "1h")
    (tmp_path / "instance" / "adapters" / "b-damaged.json").write_text("{")
    add_adapter(instance, "c-whole", "1h")
    clock.pass_minutes(60)
    report = send_due_runs(instance)
    assert report.sent == (job_id("c-whole", FIRST),)
    lost, damaged = report.problems
    assert "adapter 'a-lost': no table is named 'gone'" in lost
    assert "definition of adapter 'b-damaged'" in damaged


def test_a_new_schedule_begins_when_it_is_set(instance: Instance, clock: FakeClock) -> None:
    adapter = add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    send_due_runs(instance)
    end_run(instance, adapter, FIRST, JobStep.COMMITTED)
    AdapterStore(instance.storage.root).delete("orders")
    assert AdapterStore(instance.storage.root).last_due_ms("orders") is None
    clock.now_ms = START_MS + DAY_MS
    add_adapter(instance, "orders", "cron(0 0 * * ? *)")
    assert send_due_runs(instance) == DueReport()
    clock.now_ms = START_MS + 2 * DAY_MS
    assert send_due_runs(instance).sent == (job_id("orders", "20260103T000000Z"),)


def test_only_runs_that_were_due_at_a_time_are_sent(instance: Instance, clock: FakeClock) -> None:
    add_adapter(instance, "orders", "1h")
    clock.pass_minutes(90)
    assert send_due_runs(instance, START_MS + 59 * 60_000) == DueReport()
    assert send_due_runs(instance, START_MS + 60 * 60_000).sent == (job_id("orders", FIRST),)


def test_runs_of_one_adapter_follow_each_other_and_others_do_not_wait(instance: Instance) -> None:
    orders, users = (add_adapter(instance, name, None) for name in ("orders", "users"))
    for adapter, run_id in ((orders, "1"), (orders, "2"), (users, "1")):
        send_run(instance, adapter, run_id)
    queue = instance.jobs.queue(QueueName.ADAPTER)
    received = [queue.receive() for _ in range(3)]
    assert [parse_adapter_message(m.body) for messages in received for m in messages] == [
        AdapterMessage("orders", "1"),
        AdapterMessage("users", "1"),
    ]


def test_each_run_by_hand_has_an_id_of_its_own(instance: Instance) -> None:
    adapter = add_adapter(instance, "orders", None)
    assert send_run(instance, adapter) != send_run(instance, adapter)
    with pytest.raises(InvalidRequestError, match="run id 'a/b' is invalid"):
        send_run(instance, adapter, "a/b")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("x", "adapter message"),
        ("{}", '"adapter"'),
        ('{"adapter":"a"}', '"runId"'),
        ('{"adapter":"a","runId":5}', '"runId"'),
        ('{"adapter":"a b","runId":"1"}', "adapter name 'a b' is invalid"),
        ('{"adapter":"a","runId":"../1"}', "run id '../1' is invalid"),
        ('{"adapter":"a","runId":"1","tabel":"t"}', "tabel"),
    ],
)
def test_an_invalid_message_is_refused_with_the_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_adapter_message(body)
    assert reason in str(refused.value)


def test_a_schedule_is_set_and_removed(instance: Instance, clock: FakeClock) -> None:
    adapter = add_adapter(instance, "orders", None)
    clock.pass_minutes(17)
    changed = schedule_adapter(instance, "orders", "1h")
    assert changed == AdapterStore(instance.storage.root).get("orders")
    assert changed.schedule == make_schedule("1h", START_MS + 17 * 60_000)
    assert schedule_adapter(instance, "orders", None) == adapter
    with pytest.raises(InvalidRequestError, match="schedule 'soon' is invalid"):
        schedule_adapter(instance, "orders", "soon")


def test_an_instance_without_the_part_of_adapters_schedules_none(instance: Instance) -> None:
    add_adapter(instance, "orders", None)
    deployed = with_ports(instance, jobs={"queues": (QueueName.INGEST,)})
    with pytest.raises(InvalidRequestError, match=r"expected the part AdapterStack in sleeper"):
        schedule_adapter(deployed, "orders", "1h")
    assert schedule_adapter(deployed, "orders", None).schedule is None


SHOP = DatabaseSource(
    "postgresql://shop.example/shop", table="orders", password="env:SHOP_PASSWORD"
)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (SHOP, "password env:SHOP_PASSWORD is on this machine"),
        (replace(SHOP, password="secret:shop"), "secret:shop is not a secret that tasks may read"),
        (replace(SHOP, password="secret:listed"), None),
        (
            replace(SHOP, password="secret:old"),
            "secret:old may not be sent to shop.example:5432 (expected old@shop.example in "
            "sleeper.adapter.secrets, and a new deployment)",
        ),
        (
            replace(SHOP, password="secret:listed", url="postgresql://evil.example/shop"),
            "secret:listed may not be sent to evil.example:5432",
        ),
        (
            replace(SHOP, password="secret:listed", url=f"{SHOP.url}?hostaddr=10.0.0.1"),
            "secret:listed may not be sent to 10.0.0.1:5432",
        ),
        (FilesSource(("file:///rows.csv",)), "file file:///rows.csv is not in S3"),
        (FilesSource(("s3://bucket/rows.csv",)), None),
    ],
)
def test_an_adapter_that_tasks_on_aws_cannot_run_is_refused(
    instance: Instance, source: DatabaseSource | FilesSource, reason: str | None
) -> None:
    instance.change_properties({ADAPTER_SECRETS.name: "old,listed@shop.example"})
    sources = AwsSources(instance.storage.root, instance.properties)
    remote = replace(
        with_ports(instance, storage={"sources": sources}),
        background=None,
        read_secret=lambda _: pytest.fail("the secret was read"),
    )
    adapter = Adapter("shop", source, TableSink("sink"))
    if reason is None:
        check_workers(remote, adapter)
        return
    with pytest.raises(InvalidRequestError) as refused:
        check_workers(remote, adapter)
    assert reason in str(refused.value)
    check_workers(instance, adapter)


def test_due_runs_are_sent_without_arrow(
    instance: Instance, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_adapter(instance, "orders", "1h")
    clock.pass_minutes(60)
    # The function that sends them has no Arrow.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert send_due_runs(instance) == DueReport(sent=(job_id("orders", FIRST),))
    assert send_due_runs(instance) == DueReport()


def test_an_adapter_that_has_missed_its_time_is_late(instance: Instance, clock: FakeClock) -> None:
    add_adapter(instance, "copy", "1h")
    clock.pass_minutes(64)
    assert list_adapters(instance).summary == "1 adapter"
    clock.pass_minutes(2)
    (row,) = json_rows(list_adapters(instance))
    assert row["missed"] == "2026-01-01T01:00:00.000Z"
    assert list_adapters(instance).summary == "1 adapter, 1 late"
    send_due_runs(instance)
    assert list_adapters(instance).summary == "1 adapter"
