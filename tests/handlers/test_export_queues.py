"""Exports are captured after commits, and drained by messages."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Never

import pytest

from sleeper.errors import UnavailableError
from sleeper.export_queue import follow, timed_exporter
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import open_export_store
from sleeper.jobs.queue import Message, QueueName
from sleeper.tables import TableRef
from sleeper.workers import lambda_function
from tests.clock import DAY_MS, FakeClock
from tests.handlers import functions
from tests.handlers.conftest import (
    Lambda,
    add_rows,
    batch_of,
    commits,
    context_with,
    failed,
    make_table,
    messages_of,
    metrics_in,
)
from tests.ports import with_ports, with_system_port

QUEUE = QueueName.EXPORT_QUEUE
NOTHING = {"exports": 0, "sent": 0, "problems": 0}


@dataclass
class Receiver:
    """A receiver of exports. `before` is called before each batch."""

    keys: list[int] = field(default_factory=list)
    before: Callable[[], object] = lambda: None

    def export(self, batch: ExportBatch) -> None:
        self.before()
        self.keys += [each.key for each in batch]

    def close(self) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    made = Receiver()
    monkeypatch.setattr(timed_exporter, "open_exporter", lambda _instance, _queue: made)
    return made


@pytest.fixture(autouse=True)
def list_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LIST_SECONDS", 0.0)


def make_queue(aws: Lambda, table: str = "t", name: str = "q", **options: Any) -> TableRef:
    """Creates a table and a queue of its changes, with four buckets."""
    ref = make_table(aws.instance, table)
    create_queue(aws.instance, NewQueue(name, table, "ingest", "k", "v", buckets=4, **options))
    return ref


def call_follow(aws: Lambda, *tables: TableRef) -> dict[str, int]:
    result: dict[str, int] = aws.call(functions.follow_exports, commits(*tables))
    return result


def waiting(aws: Lambda) -> int:
    return aws.instance.jobs.queue(QUEUE).counts().visible


def test_a_commit_is_exported_once(aws: Lambda, receiver: Receiver) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", *range(20))
    assert call_follow(aws, ref) == {"exports": 20, "sent": 4, "problems": 0}
    assert waiting(aws) == 4
    assert aws.take(QUEUE, functions.drain_exports) == 4
    assert sorted(receiver.keys) == list(range(20))
    assert call_follow(aws, ref, ref) == NOTHING
    assert waiting(aws) == 0
    assert open_export_store(aws.instance).counts("q").pending == 0


def test_a_commit_to_a_table_without_queues_reads_no_log(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue(aws)
    other = make_table(aws.instance, "other")

    def refuse(table_id: object) -> Never:
        pytest.fail(f"the state of table {table_id} was opened")

    known = with_ports(aws.instance, tables={"state": refuse})
    monkeypatch.setattr(lambda_function, "_opened", lambda _: known)
    assert call_follow(aws, other) == NOTHING


def test_queues_are_listed_once_for_many_commits(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = follow.RecentQueues()
    ref = make_queue(aws)
    monkeypatch.setattr(follow, "_LIST_SECONDS", 60.0)
    queues._listed_at = float("-inf")
    assert queues.find(aws.instance, {ref.id}) == ["q"]
    assert queues.find(aws.instance, {"other"}) == []
    open_export_store(aws.instance).remove("q")
    assert queues.find(aws.instance, {ref.id}) == ["q"]


def test_the_schedule_finds_what_events_missed_and_publishes_metrics(
    aws: Lambda, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aws.call(functions.follow_exports) == NOTHING
    assert metrics_in(capsys.readouterr().out) == []
    make_queue(aws)
    make_queue(aws, "u", "r")
    add_rows(aws.instance, "t", 1, 2, 3)
    add_rows(aws.instance, "u", 4)
    result = aws.call(functions.follow_exports)
    assert (result["exports"], result["problems"]) == (4, 0)
    (metric,) = metrics_in(capsys.readouterr().out)
    assert (metric["ExportsPending"], metric["kind"]) == ([4.0], "export-queue")
    assert metric["ExportQueueProblems"] == metric["ExportsDead"] == [0.0]
    aws.take(QUEUE, functions.drain_exports)
    assert sorted(receiver.keys) == [1, 2, 3, 4]


def test_a_waiting_bucket_gets_one_message_a_minute(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, clock = make_queue(aws), FakeClock(60_000 * 1_000_000)
    known = replace(aws.instance, clock=clock)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: known)
    for key in range(5):
        add_rows(aws.instance, "t", 4 * key)
        call_follow(aws, ref)
    buckets = len(open_export_store(aws.instance).buckets("q"))
    assert waiting(aws) == buckets
    clock.pass_seconds(61)
    aws.call(functions.follow_exports)
    aws.call(functions.follow_exports)
    assert waiting(aws) == 2 * buckets


def test_exports_that_come_after_a_drain_get_a_message_at_once(
    aws: Lambda, receiver: Receiver
) -> None:
    ref = make_queue(aws)
    for number in range(3):
        add_rows(aws.instance, "t", 7)
        call_follow(aws, ref)
        assert aws.take(QUEUE, functions.drain_exports) == 1
        assert receiver.keys == [7] * (number + 1)


def test_exports_that_come_during_the_last_call_are_drained_too(
    aws: Lambda, receiver: Receiver
) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", 7)
    call_follow(aws, ref)

    def add_more() -> None:
        if not receiver.keys:
            add_rows(aws.instance, "t", 7)
            call_follow(aws, ref)

    receiver.before = add_more
    aws.take(QUEUE, functions.drain_exports)
    assert receiver.keys == [7, 7]


def test_no_message_is_sent_while_a_bucket_waits_after_a_failure(
    aws: Lambda, receiver: Receiver
) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", 7)
    call_follow(aws, ref)

    def refuse() -> None:
        raise UnavailableError("the receiver is unavailable")

    receiver.before = refuse
    (message,) = aws.instance.jobs.queue(QUEUE).receive()
    assert failed(aws.call(functions.drain_exports, batch_of([message]))) == []
    (status,) = open_export_store(aws.instance).buckets("q")
    assert (status.failures, status.refusals) == (1, 0)
    aws.instance.jobs.queue(QUEUE).delete(message.receipt)
    add_rows(aws.instance, "t", 7)
    assert call_follow(aws, ref) == {"exports": 1, "sent": 0, "problems": 0}
    assert waiting(aws) == 0


def test_a_paused_queue_gets_no_messages_and_a_resumed_one_with_the_next_schedule(
    aws: Lambda, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", 7)
    call_follow(aws, ref)
    open_export_store(aws.instance).pause("q", True)
    assert aws.take(QUEUE, functions.drain_exports) == 1
    add_rows(aws.instance, "t", 8)
    assert call_follow(aws, ref)["sent"] == 0
    assert receiver.keys == []
    open_export_store(aws.instance).pause("q", False)
    later = replace(aws.instance, clock=lambda: aws.instance.clock() + 60_000)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: later)
    aws.call(functions.follow_exports)
    aws.take(QUEUE, functions.drain_exports)
    assert sorted(receiver.keys) == [7, 8]


def test_a_function_that_has_no_time_left_sends_its_buckets_again(
    aws: Lambda, receiver: Receiver
) -> None:
    ref = make_queue(aws, timeout_seconds=1)
    add_rows(aws.instance, "t", *range(20))
    call_follow(aws, ref)
    messages = aws.instance.jobs.queue(QUEUE).receive(10)
    # With ten seconds to send messages again, and one for a call.
    soon = context_with(lambda: 11.0)
    assert failed(aws.call(functions.drain_exports, batch_of(messages), soon)) == []
    assert receiver.keys == []
    for message in messages:
        aws.instance.jobs.queue(QUEUE).delete(message.receipt)
    assert waiting(aws) == 4
    aws.take(QUEUE, functions.drain_exports)
    assert sorted(receiver.keys) == list(range(20))


def test_a_bucket_that_another_worker_has_causes_no_messages(
    aws: Lambda, receiver: Receiver
) -> None:
    ref, store = make_queue(aws), open_export_store(aws.instance)
    add_rows(aws.instance, "t", 7)
    call_follow(aws, ref)
    (status,) = store.buckets("q")
    assert store.claim("q", status.bucket, "another", 60)
    assert aws.take(QUEUE, functions.drain_exports) == 1
    assert waiting(aws) == 0
    assert receiver.keys == []


def test_objects_of_died_processes_are_swept_once_a_day(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue(aws)
    swept: list[str] = []

    class Store:
        def sweep(self, name: str) -> int:
            swept.append(name)
            return 0

        def __getattr__(self, name: str) -> Any:
            return getattr(open_export_store(aws.instance), name)

    clock = FakeClock(aws.instance.clock() // DAY_MS * DAY_MS - 60_000)
    known = replace(with_system_port(aws.instance, "export_queue", Store()), clock=clock)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: known)
    for expected in ([], ["q"], ["q"]):
        aws.call(functions.follow_exports)
        assert swept == expected
        clock.pass_seconds(60)


def test_a_queue_whose_timeout_the_function_cannot_keep_fails(
    aws: Lambda, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    ref = make_queue(aws, timeout_seconds=300)
    add_rows(aws.instance, "t", 1)
    call_follow(aws, ref)
    messages = aws.instance.jobs.queue(QUEUE).receive(10)
    late = context_with(lambda: 300.0)
    result = failed(aws.call(functions.drain_exports, batch_of(messages), late))
    assert result == [message.message_id for message in messages]
    assert "sleeper.export.queue.drain.timeout.seconds" in caplog.text
    assert receiver.keys == []


def test_a_queue_that_fails_does_not_stop_others(
    aws: Lambda, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = make_queue(aws, "bad", "bad"), make_queue(aws, "good", "good")
    add_rows(aws.instance, "good", 1)
    capture_exports = follow.capture_exports

    def broken(instance: Any, name: str, seconds: float) -> Any:
        if name == "bad":
            raise RuntimeError("unexpected")
        return capture_exports(instance, name, seconds)

    monkeypatch.setattr(follow, "capture_exports", broken)
    assert call_follow(aws, bad, good) == {"exports": 1, "sent": 1, "problems": 1}
    assert aws.call(functions.follow_exports)["problems"] == 1


def test_only_one_function_captures_a_queue(aws: Lambda, receiver: Receiver) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", 1)
    store = open_export_store(aws.instance)
    assert store.claim("q", follow._CAPTURE, "another", 60)
    assert call_follow(aws, ref) == NOTHING
    store.release("q", follow._CAPTURE, "another")
    assert call_follow(aws, ref) == {"exports": 1, "sent": 1, "problems": 0}


def test_messages_of_deleted_queues_and_other_texts_do_no_harm(
    aws: Lambda, receiver: Receiver
) -> None:
    ref = make_queue(aws)
    add_rows(aws.instance, "t", 1)
    call_follow(aws, ref)
    (good,) = aws.instance.jobs.queue(QUEUE).receive()
    others: list[Message] = messages_of(
        '{"queue": "deleted", "bucket": 0}', "no json", '{"queue": "q#1", "bucket": 1}'
    )
    result = failed(aws.call(functions.drain_exports, batch_of([*others, good])))
    assert sorted(result) == ["m1", "m2"]
    assert receiver.keys == [1]
