"""Items of a bucket are in the order of their exports, also those of several steps."""

import pytest

from sleeper.export_queue import capture, changed_keys, sources
from sleeper.export_queue.definition import ExportSource
from sleeper.export_queue.rows import decode_rows
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of

ROWS = 100


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores the exports of each transaction, and each part of a larger one, in its own step."""
    monkeypatch.setattr(capture, "_STEP_BYTES", 1)
    monkeypatch.setattr(changed_keys, "MEMORY_BYTES", 100)
    monkeypatch.setattr(changed_keys, "_CHUNK_BYTES", 1)


@pytest.mark.parametrize("buffer_bytes", [100, 2**20], ids=["many items", "one item"])
@pytest.mark.parametrize("source", [ExportSource.TRANSACTION, ExportSource.INGEST])
def test_newer_exports_of_a_bucket_follow_older_ones(
    instance: Instance, source: ExportSource, buffer_bytes: int
) -> None:
    table = make_table_of_words(instance)
    queue = define_queue(table, "word", "count", source, buckets=2, buffer_bytes=buffer_bytes)
    create_queue(instance, table.name, queue)
    for n in range(5):
        with table.transaction() as transaction:
            transaction.ingest(rows_of(**{f"w{word}": n for word in range(20)}))
            if source is ExportSource.TRANSACTION:
                for word in range(20):
                    transaction.export("q", f"w{word}", n)
    assert capture.capture_exports(instance, "q").exports == ROWS
    found = []
    for bucket in range(2):
        items = open_export_store(instance).read("q", bucket, 2**40)
        parts = [decode_rows(queue, item.content)["sequence"].to_pylist() for item in items]
        sequences = [sequence for part in parts for sequence in part]
        assert sequences == sorted(sequences)
        found += sequences
    assert len(found) == ROWS
    assert len(set(found)) == 5


def test_small_files_with_many_bytes_are_not_read_together(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("read together")

    monkeypatch.setattr(sources, "numbered_exports", fail)
    monkeypatch.setattr(sources, "_GROUP_MEMORY_BYTES_MAX", 100)
    table = make_table_of_words(instance)
    queue = define_queue(table, "word", "count")
    create_queue(instance, table.name, queue)
    for n in range(3):
        table.ingest(rows_of(**{f"w{word}": n for word in range(20)}))
    receiver = Receiver(instance, queue)
    assert receiver.take().exports == 60
    assert receiver.rows == {(f"w{word}",): (2,) for word in range(20)}
