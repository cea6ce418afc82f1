"""From a rule's event to the work: fan out, FIFO queue, handler, workflow."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sleeper.admin.tables import delete_table, set_online
from sleeper.errors import DataError, UnavailableError
from sleeper.garbage_collection.service import finish_deletions
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import Message, QueueName
from sleeper.local.instance import open_local_instance
from sleeper.runs.retry_policy import RETRY_POLICIES, RetryPolicy
from sleeper.tables import TableState
from sleeper.workers import message_batch, schedule
from tests.clock import FakeClock
from tests.handlers import functions
from tests.handlers.conftest import (
    Lambda,
    add_rows,
    batch_of,
    context_with,
    failed,
    make_table,
    messages_of,
    metrics_in,
)
from tests.ports import with_ports

OPERATIONS = {
    QueueName.COMPACTION_JOB_CREATION: functions.create_compaction_jobs,
    QueueName.FIND_PARTITIONS_TO_SPLIT: functions.find_partitions_to_split,
    QueueName.GARBAGE_COLLECTION: functions.collect_garbage,
    QueueName.ORPHAN_COLLECTION: functions.collect_orphans,
    QueueName.STATE_SNAPSHOTS: functions.take_state_snapshots,
    QueueName.TABLE_METRICS: functions.report_table_metrics,
}
ONLINE_ONLY = {QueueName.COMPACTION_JOB_CREATION, QueueName.FIND_PARTITIONS_TO_SPLIT}


@pytest.fixture
def fan_out(aws: Lambda, monkeypatch: pytest.MonkeyPatch) -> Callable[[QueueName], int]:
    def call(operation: QueueName) -> int:
        monkeypatch.setenv("SLEEPER_OPERATION", operation.value)
        return aws.call(functions.fan_out_tables)["tables"]

    return call


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rule_runs_its_operation_for_each_of_its_tables(
    aws: Lambda, fan_out: Any, operation: QueueName
) -> None:
    for name in ("a", "b", "off"):
        make_table(aws.instance, name)
    set_online(aws.instance, "off", False)
    delete_table(aws.instance, make_table(aws.instance, "gone").name)
    tables = 2 if operation in ONLINE_ONLY else 3
    assert fan_out(operation) == tables
    assert aws.take(operation, OPERATIONS[operation]) == tables
    assert aws.instance.jobs.queue(operation).counts().unfinished == 0


def test_messages_are_ids_of_tables_each_in_a_group_of_its_own(aws: Lambda, fan_out: Any) -> None:
    ids = [make_table(aws.instance, name).id for name in ("a", "b")]
    fan_out(QueueName.GARBAGE_COLLECTION)
    messages = aws.instance.jobs.queue(QueueName.GARBAGE_COLLECTION).receive(10)
    assert [(m.body, m.group) for m in messages] == [(i, i) for i in ids]


def test_nothing_more_is_sent_while_ten_rounds_wait(aws: Lambda, fan_out: Any) -> None:
    make_table(aws.instance, "a")
    assert [fan_out(QueueName.TABLE_METRICS) for _ in range(12)] == [1] * 10 + [0, 0]


def test_an_unknown_operation_queue_is_refused(fan_out: Any) -> None:
    with pytest.raises(Exception, match="queue ingest is not an operation on tables"):
        fan_out(QueueName.INGEST)


def test_compaction_jobs_are_created_and_sent(
    aws: Lambda, fan_out: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make_table(
        aws.instance,
        "t",
        compaction_strategy_class="BasicCompactionStrategy",
        compaction_files_batch_size="2",
    )
    add_rows(aws.instance, "t", 1)
    add_rows(aws.instance, "t", 2)
    fan_out(QueueName.COMPACTION_JOB_CREATION)
    aws.take(QueueName.COMPACTION_JOB_CREATION, functions.create_compaction_jobs)
    assert aws.instance.jobs.queue(QueueName.COMPACTION).counts().visible == 1
    (job,) = aws.instance.jobs.tracker.recent(JobKind.COMPACTION)
    assert job.inputs == 2
    (measurement,) = metrics_in(capsys.readouterr().out)
    assert (measurement["instance"], measurement["table"]) == ("test", "t")
    assert measurement["CompactionJobsCreated"] == [1.0]
    (description,) = measurement["_aws"]["CloudWatchMetrics"]
    assert description["Namespace"] == "Sleeper"
    assert description["Dimensions"] == [["instance", "table"]]


def test_a_repeated_creation_creates_no_more_jobs(aws: Lambda, fan_out: Any) -> None:
    ref = make_table(
        aws.instance,
        "t",
        compaction_strategy_class="BasicCompactionStrategy",
        compaction_files_batch_size="2",
    )
    add_rows(aws.instance, "t", 1)
    add_rows(aws.instance, "t", 2)
    for _ in range(3):
        aws.call(functions.create_compaction_jobs, batch_of(messages_of(ref.id)))
    assert aws.instance.jobs.queue(QueueName.COMPACTION).counts().visible == 1


def test_a_table_named_twice_in_a_batch_is_processed_once(
    aws: Lambda, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (make_table(aws.instance, name).id for name in ("a", "b"))
    answer = aws.call(
        functions.report_table_metrics, batch_of(messages_of(one, two, one, one, two))
    )
    assert failed(answer) == []
    assert [m["table"] for m in metrics_in(capsys.readouterr().out)] == ["a", "b"]


@pytest.mark.parametrize("body", ["0a1b2c3d", "", "no table", "{", "é" * 3000, "\x00"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_message_of_an_unknown_table_is_deleted_and_the_batch_continues(
    aws: Lambda, operation: QueueName, body: str
) -> None:
    ref = make_table(aws.instance, "t")
    answer = aws.call(OPERATIONS[operation], batch_of(messages_of(body, ref.id)))
    assert failed(answer) == []


def test_an_offline_or_deleted_table_is_skipped(
    aws: Lambda, capsys: pytest.CaptureFixture[str]
) -> None:
    off, removed_paths = (
        make_table(aws.instance, n, partition_splitting_threshold="1").id for n in "ab"
    )
    add_rows(aws.instance, "a", 1, 2, 3)
    add_rows(aws.instance, "b", 1, 2, 3)
    set_online(aws.instance, "a", False)
    delete_table(aws.instance, "b")
    for handler in (functions.find_partitions_to_split, functions.create_compaction_jobs):
        assert failed(aws.call(handler, batch_of(messages_of(off, removed_paths)))) == []
    assert aws.instance.jobs.queue(QueueName.SPLITTING).counts().unfinished == 0
    assert aws.instance.jobs.queue(QueueName.COMPACTION).counts().unfinished == 0


class Operation:
    """Fails for some tables."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.deleted_tables: list[str] = []

    def __call__(self, ref: Any) -> None:
        if ref.name in self.errors:
            raise self.errors[ref.name]
        self.deleted_tables.append(ref.name)


def operate(instance: Instance, operation: Any, messages: Sequence[Message]) -> list[str]:
    """Ids of the messages that return."""
    queue = QueueName.GARBAGE_COLLECTION
    return failed(message_batch.run_for_tables(batch_of(messages), instance, queue, operation))


def test_a_failing_table_returns_one_message_and_others_continue(
    instance: Instance,
) -> None:
    bad, good = make_table(instance, "bad").id, make_table(instance, "good").id
    operation = Operation(bad=UnavailableError("no answer"))
    assert operate(instance, operation, messages_of(bad, good, bad, good)) == ["m0"]
    assert operation.deleted_tables == ["good"]


def test_a_batch_of_failures_returns_a_response_without_raising(instance: Instance) -> None:
    bad, worse = make_table(instance, "bad").id, make_table(instance, "worse").id
    operation = Operation(bad=DataError("torn"), worse=OSError("disk"))
    assert operate(instance, operation, messages_of(bad, worse)) == ["m0", "m1"]


def test_a_failing_table_is_retried_with_increasing_delays(
    instance: Instance,
) -> None:
    bad, good = make_table(instance, "bad").id, make_table(instance, "good").id
    operation = Operation(bad=UnavailableError("no answer"))
    values: list[tuple[str, float]] = []

    def release(receipt: str, delay_seconds: float) -> None:
        values.append((receipt, delay_seconds))
        if delay_seconds == 10:
            raise UnavailableError("throttled")

    queue = SimpleNamespace(release=release)
    instance_with_queue = with_ports(instance, jobs={"queue": lambda _: queue})
    messages = messages_of(bad, good)
    for receives in (1, 2, 3, 7, 1000):
        again = [replace(message, receives=receives) for message in messages]
        assert operate(instance_with_queue, operation, again) == ["m0"]
    assert values == [("receipt 0", delay) for delay in (5, 10, 20, 300, 300)]


def test_a_failed_operation_is_retried_before_its_visibility_timeout_expires(
    instance: Instance,
) -> None:
    clock = FakeClock()
    with closing(open_local_instance(Path(instance.where), clock)) as opened_instance:
        make_table(opened_instance, "t")
        queue = opened_instance.jobs.queue(QueueName.GARBAGE_COLLECTION)
        for _ in range(2):
            schedule.fan_out_tables(opened_instance, QueueName.GARBAGE_COLLECTION)
        first, second = queue.receive(10)
        fails = Operation(t=UnavailableError("no answer"))
        assert operate(opened_instance, fails, [first, second]) == [first.message_id]
        queue.delete(second.receipt)
        clock.now_ms += 4_999
        assert queue.receive(10) == ()
        clock.now_ms += 1
        works = Operation()
        assert operate(opened_instance, works, queue.receive(10)) == []
        assert works.deleted_tables == ["t"]


def test_a_poison_table_becomes_a_dead_letter_and_other_tables_continue(
    aws: Lambda, fan_out: Any, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_retries = RetryPolicy((), (0.0,))
    monkeypatch.setitem(RETRY_POLICIES, QueueName.GARBAGE_COLLECTION, no_retries)
    bad = make_table(instance, "bad")
    make_table(instance, "good")
    # Its properties are gone, so that nothing can be done for it.
    (path,) = (p for p in (Path(instance.where) / "tables").iterdir() if bad.id in p.name)
    path.unlink()
    queue = instance.jobs.queue(QueueName.GARBAGE_COLLECTION)
    fan_out(QueueName.GARBAGE_COLLECTION)
    for _ in range(3):
        messages = queue.receive(10)
        result = failed(aws.call(functions.collect_garbage, batch_of(messages)))
        assert result == [m.message_id for m in messages if m.body == bad.id]
        for message in messages:
            if message.message_id not in result:
                queue.delete(message.receipt)
    assert queue.receive(10) == ()
    (letter,) = instance.jobs.dead_letters(QueueName.GARBAGE_COLLECTION).list()
    assert letter.body == bad.id


def test_a_function_that_runs_out_of_time_returns_the_rest_at_once(
    aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [make_table(aws.instance, name) for name in ("a", "b", "c")]
    left = iter([100.0, 100.0, 11.0, 9.0, 8.0])
    values: list[tuple[str, float]] = []
    queue = SimpleNamespace(release=lambda receipt, delay: values.append((receipt, delay)))
    open_watched = lambda _: with_ports(aws.instance, jobs={"queue": lambda _: queue})  # noqa: E731
    monkeypatch.setattr("sleeper.workers.lambda_function._opened", open_watched)
    batch = batch_of(messages_of(*(ref.id for ref in refs)))
    answer = aws.call(functions.report_table_metrics, batch, context_with(lambda: next(left)))
    assert failed(answer) == ["m2"]
    assert values == [("receipt 2", 0)]


def test_deleting_a_table_during_an_operation_is_not_a_failure(instance: Instance) -> None:
    ref = make_table(instance, "t")

    def delete(_: Any) -> None:
        delete_table(instance, "t", now=True)
        raise UnavailableError("its files went away")

    assert operate(instance, delete, messages_of(ref.id)) == []


def test_a_changed_property_reaches_a_warm_container(aws: Lambda, instance: Instance) -> None:
    ref = make_table(instance, "t", partition_splitting_threshold="1000")
    add_rows(instance, "t", *range(30))
    event = batch_of(messages_of(ref.id))
    aws.call(functions.find_partitions_to_split, event)
    assert instance.jobs.queue(QueueName.SPLITTING).counts().visible == 0
    instance.tables.properties.change(ref.id, {"sleeper.table.partition.splitting.threshold": "10"})
    aws.call(functions.find_partitions_to_split, event)
    assert instance.jobs.queue(QueueName.SPLITTING).counts().visible == 1


def test_snapshots_are_taken_and_reported(aws: Lambda, capsys: pytest.CaptureFixture[str]) -> None:
    aws.instance.change_properties({"sleeper.snapshot.transactions.min": "1"})
    ref = make_table(aws.instance, "t")
    add_rows(aws.instance, "t", 1)
    event = batch_of(messages_of(ref.id))
    assert failed(aws.call(functions.take_state_snapshots, event)) == []
    assert [m["StateSnapshots"] for m in metrics_in(capsys.readouterr().out)] == [[1.0]]
    assert aws.instance.tables.state(ref.id).newest_snapshot() == 2
    aws.call(functions.take_state_snapshots, event)
    assert metrics_in(capsys.readouterr().out) == []


def test_metrics_report_files_rows_and_partitions_of_a_table(
    aws: Lambda, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = make_table(aws.instance, "t")
    add_rows(aws.instance, "t", 1, 2, 3)
    aws.call(functions.report_table_metrics, batch_of(messages_of(ref.id)))
    (measurement,) = metrics_in(capsys.readouterr().out)
    counts = {k: v[0] for k, v in measurement.items() if isinstance(v, list)}
    assert counts.pop("Bytes") > 0
    assert counts == {
        "Rows": 3,
        "Files": 1,
        "FilesWithoutReferences": 0,
        "FileReferences": 1,
        "Partitions": 1,
        "LeafPartitions": 1,
        "UnfinishedCompactionJobs": 0,
        "TransactionNumber": 2,
    }


def test_a_sweep_finishes_deletions_past_one_that_fails(aws: Lambda, instance: Instance) -> None:
    for name in ("a", "b"):
        make_table(instance, name)
        delete_table(instance, name, now=True)
    first, _ = instance.tables.index.list(TableState.DELETING)

    def remove(table_id: str) -> None:
        if table_id == first.id:
            raise UnavailableError("busy")
        instance.tables.delete(table_id)  # type: ignore[arg-type]

    with pytest.raises(UnavailableError, match="busy"):
        finish_deletions(with_ports(instance, tables={"delete": remove}))
    assert instance.tables.index.list(TableState.DELETING) == (first,)
    assert aws.call(functions.sweep_instance) == {"abandoned": 0, "deleted": 1}
    assert aws.call(functions.sweep_instance) == {"abandoned": 0, "deleted": 0}
