"""A leaf that cannot be split is not sent again and again."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.table import SPLIT_THRESHOLD_ROWS
from sleeper.splitting.find import SentSplit, send_splits
from sleeper.splitting.service import SplitStatus, run_split_message

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {})
    opened = open_local_instance(tmp_path / "instance")
    create_table(opened, "t", _SCHEMA, {SPLIT_THRESHOLD_ROWS.name: "50"})
    yield opened
    opened.close()


def ingest(instance: Instance, rows: int) -> None:
    """Adds rows of one key."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    ingest_rows(instance, "t", [pa.record_batch([pa.array([7] * rows)], schema=schema)])


def run_splits(instance: Instance) -> list[SplitStatus]:
    queue = instance.jobs.queue(QueueName.SPLITTING)
    found = []
    for message in queue.receive(10):
        found.append(run_split_message(instance, message.body).status)
        queue.delete(message.receipt)
    return found


def test_a_leaf_of_one_key_is_sent_again_only_when_it_has_grown_by_half(
    instance: Instance,
) -> None:
    table, sent = instance.table("t"), dict[str, SentSplit]()

    def send(sends_again: bool = False) -> int:
        with table.state.reading() as state:
            number = state.number
        return send_splits(instance, table.ref, sent, number, sends_again)

    ingest(instance, 100)
    assert send() == 1
    assert run_splits(instance) == [SplitStatus.UNSPLITTABLE]
    for _ in range(4):
        ingest(instance, 10)
        assert send() == 0
    ingest(instance, 10)
    assert send() == 1
    assert run_splits(instance) == [SplitStatus.UNSPLITTABLE]
    ingest(instance, 10)
    assert send() == 0
    assert send(sends_again=True) == 1
    assert run_splits(instance) == [SplitStatus.UNSPLITTABLE]
    assert send(sends_again=True) == 0
