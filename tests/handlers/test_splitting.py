"""Finding partitions to split, and splitting them, from rule to split table."""

from dataclasses import replace
from typing import Any

import pytest

from sleeper.admin.tables import delete_table
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.properties.instance import QUEUE_RECEIVES_MAX, QUEUE_VISIBILITY_SECONDS
from sleeper.splitting.find import send_new_splits
from sleeper.tables import TableRef
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, batch_of, failed, make_table, messages_of


@pytest.fixture
def table(instance: Instance) -> TableRef:
    """A table of one leaf, over the threshold."""
    ref = make_table(instance, "t", partition_splitting_threshold="10")
    add_rows(instance, "t", *range(35))
    return ref


def leaves(instance: Instance, ref: TableRef) -> int:
    with instance.tables.state(ref.id).reading() as state:
        return state.files.totals().leaves


def find(aws: Lambda, ref: TableRef) -> None:
    event = batch_of(messages_of(ref.id))
    assert failed(aws.call(functions.find_partitions_to_split, event)) == []


def test_a_leaf_over_the_threshold_is_found_sent_and_split(aws: Lambda, table: TableRef) -> None:
    find(aws, table)
    assert aws.take(QueueName.SPLITTING, functions.split_partition) == 1
    assert leaves(aws.instance, table) == 4


def test_a_leaf_is_sent_once_for_repeated_findings(aws: Lambda, table: TableRef) -> None:
    for keys in range(100, 104):
        find(aws, table)
        add_rows(aws.instance, "t", keys)
    assert aws.instance.jobs.queue(QueueName.SPLITTING).counts().visible == 1


def test_a_split_is_sent_again_after_all_tries_of_its_queue(
    instance: Instance, table: TableRef
) -> None:
    properties = instance.properties()
    tries = properties.get(QUEUE_VISIBILITY_SECONDS) * properties.get(QUEUE_RECEIVES_MAX) * 1000
    now = 1000 * tries

    def send_at(now_ms: int) -> int:
        return send_new_splits(replace(instance, clock=lambda: now_ms), table)

    assert [send_at(now), send_at(now + tries - 1)] == [1, 0]
    assert [send_at(now + tries), send_at(now + tries)] == [1, 0]


def test_a_split_whose_sender_died_before_recording_it_is_sent_again(
    instance: Instance, table: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(instance.jobs.tracker), "record", _dies)
        with pytest.raises(UnavailableError):
            send_new_splits(instance, table)
    assert instance.jobs.queue(QueueName.SPLITTING).counts().visible == 1
    assert send_new_splits(instance, table) == 1
    assert [j.job_id.partition("@")[0] for j in instance.jobs.tracker.recent(JobKind.SPLIT)] == [
        "root"
    ]


def test_a_repeated_or_late_split_changes_nothing(aws: Lambda, table: TableRef) -> None:
    find(aws, table)
    (message,) = aws.instance.jobs.queue(QueueName.SPLITTING).receive(10)
    for _ in range(2):
        assert failed(aws.call(functions.split_partition, batch_of([message, message]))) == []
    assert leaves(aws.instance, table) == 4


@pytest.mark.parametrize(
    "poison",
    ["{", "", "[]", "null", '{"tableId":"0a1b2c3d"}', '{"partitionId":"root"}', "[" * 100_000,
     '{"tableId":"0a1b2c3d","partitionId":"root"}', '{"tableId":{},"partitionId":[]}'],
    ids=lambda body: body[:40],
)  # fmt: skip
def test_a_poison_message_is_dropped_and_the_batch_continues(
    aws: Lambda, table: TableRef, poison: str
) -> None:
    good = f'{{"tableId":"{table.id}","partitionId":"root"}}'
    event = batch_of(messages_of(poison, good, groups=("", "")))
    assert failed(aws.call(functions.split_partition, event)) == []
    assert leaves(aws.instance, table) == 4


def test_unavailable_work_returns(
    aws: Lambda, table: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = f'{{"tableId":"{table.id}","partitionId":"root"}}'
    with monkeypatch.context() as patch:
        patch.setattr("sleeper.splitting.service.split_partition", _dies)
        event = batch_of(messages_of("{", good, groups=("", "")))
        assert failed(aws.call(functions.split_partition, event)) == ["m1"]
    assert leaves(aws.instance, table) == 1


def test_a_split_of_a_deleted_table_is_dropped(aws: Lambda, table: TableRef) -> None:
    find(aws, table)
    delete_table(aws.instance, "t")
    assert aws.take(QueueName.SPLITTING, functions.split_partition) == 1


def _dies(*_: Any, **__: Any) -> None:
    raise UnavailableError("no answer")
