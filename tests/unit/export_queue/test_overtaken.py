"""Two processes that capture the same transactions."""

import pytest

from sleeper.export_queue import capture
from sleeper.instance import Instance
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of


def test_what_another_process_took_up_meanwhile_is_not_exported_again(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table_of_words(instance)
    queue = define_queue(table, "word", "count")
    create_queue(instance, "words", queue)
    receiver, is_step = Receiver(instance, queue), capture._Capture._is_step
    table.ingest(rows_of(a=1))

    def overtake(slow: capture._Capture) -> bool:
        monkeypatch.undo()
        receiver.take()
        table.ingest(rows_of(b=2))
        return is_step(slow)

    monkeypatch.setattr(capture._Capture, "_is_step", overtake)
    receiver.take()
    receiver.take()
    assert [key for _, key, _ in receiver.exports] == [("a",), ("b",)]
