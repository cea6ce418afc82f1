"""Tests of stores that follow a log of changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.definition import EngineType, Partition
from sleeper.adjunct.feeds.feed import StartAction
from sleeper.adjunct.inputs.log import FINISHED
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from tests.fake_log import FakeLog, FakeLogInput, unavailable
from tests.unit.adjunct.log_stores import LogStore

KINDS = pytest.mark.parametrize("kind", list(EngineType))


def make_log(count: int = 10) -> FakeLog:
    log = FakeLog()
    for number in range(count):
        log.send(f"k{number % 7}", number)
    return log


@KINDS
def test_a_load_has_all_messages_and_changes_follow(tmp_path: Path, kind: EngineType) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log, kind=kind)
    assert opened.action is StartAction.LOAD
    assert opened.update() == log.fold()
    assert opened.state.is_bootstrapped
    assert not opened.state.is_incomplete
    log.send("k1", None)
    log.send("new", {"a": [1]})
    log.send(None, "ignored")
    assert opened.update() == log.fold()
    assert "k1" not in opened.content()
    opened.close()
    assert isinstance(opened.input, FakeLogInput)
    assert opened.input.is_closed


def test_an_update_reads_what_the_log_has_at_its_call(tmp_path: Path) -> None:
    log = make_log(2)
    opened = LogStore(tmp_path, log)
    opened.update()
    log.reads.clear()
    opened.feed.update()
    assert log.reads == []
    log.send("a", 1, 0)
    opened.feed.update()
    assert len(log.reads) == 1
    opened.close()


def test_a_restart_goes_on_after_the_saved_position(tmp_path: Path) -> None:
    log = make_log()
    first = LogStore(tmp_path, log)
    first.update()
    first.close()
    log.send("k1", "later", 0)
    log.reads.clear()
    second = LogStore(tmp_path, log)
    assert second.action is StartAction.CONTINUE
    assert second.content()["k1"] != "later"
    assert second.update()["k1"] == "later"
    assert log.reads == [f"0:{len(log.partitions['0'].messages) - 1}"]
    second.close()


def test_the_version_is_invisible_until_the_load_is_complete(tmp_path: Path) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log)

    class FailsLater(FakeLogInput):
        def poll(self, positions: Any, partitions: Any) -> Any:
            if positions:
                log.failures.append(unavailable())
            return super().poll(positions, partitions)

    opened.feed._reader.source = FailsLater(log)
    with pytest.raises(UnavailableError):
        opened.feed.update()
    with pytest.raises(UnavailableError, match="no complete version"):
        opened.content()
    assert opened.store.rows_building == 6
    reads = list(log.reads)
    opened.feed._reader.source = opened.input
    assert opened.update() == log.fold()
    # The build went on where it was.
    assert len(log.reads) == len(set(log.reads)) > len(reads)
    assert opened.store.rows_building is None
    opened.close()


@KINDS
def test_without_bootstrap_lookups_begin_at_once(tmp_path: Path, kind: EngineType) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log, bootstrap=False, kind=kind)
    assert opened.action is StartAction.FOLLOW
    assert opened.content() == {}
    assert opened.state.is_incomplete
    assert opened.update() == log.fold()
    assert not opened.state.is_incomplete
    assert opened.state.is_bootstrapped
    opened.close()


def test_a_store_that_began_with_the_oldest_message_is_complete_after_a_restart(
    tmp_path: Path,
) -> None:
    log = make_log()
    LogStore(tmp_path, log, bootstrap=False).close()
    opened = LogStore(tmp_path, log, bootstrap=False)
    assert opened.action is StartAction.CONTINUE
    assert opened.state.is_incomplete
    opened.update()
    assert not opened.state.is_incomplete
    opened.close()


def test_a_store_that_goes_on_without_its_version_is_incomplete(tmp_path: Path) -> None:
    log = make_log()
    first = LogStore(tmp_path, log, bootstrap=False)
    first.update()
    first.close()
    log.send("new", 1)
    second = LogStore(tmp_path, log, bootstrap=False, now_ms=10**9)
    assert second.action is StartAction.FOLLOW
    assert second.update() == {"new": 1}
    assert second.state.is_incomplete
    second.close()


@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_trimmed_log_is_loaded_again(
    tmp_path: Path, bootstrap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log, bootstrap=bootstrap)
    opened.update()
    for number in range(20):
        log.send(f"n{number}", number)
    for name, each in log.partitions.items():
        log.trim(name, len(each.messages) - 2)
    assert opened.update() == log.fold()
    assert "messages were trimmed" in caplog.text
    assert "has no early messages" in caplog.text
    opened.close()


def test_a_log_that_was_trimmed_meanwhile_is_loaded_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log()
    first = LogStore(tmp_path, log)
    first.update()
    first.close()
    log.send("k1", 1, 0)
    log.send("k1", 2, 0)
    log.trim(0, len(log.partitions["0"].messages) - 1)
    second = LogStore(tmp_path, log)
    assert second.action is StartAction.LOAD
    assert "is created again: fake, partition 0: messages were trimmed" in caplog.text
    assert second.update() == log.fold()
    second.close()


def test_a_log_that_went_back_is_loaded_again(tmp_path: Path) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log)
    opened.update()
    other = FakeLog()
    other.send("other", 1)
    log.partitions = other.partitions
    assert opened.update() == {"other": 1}
    opened.close()


def test_a_version_serves_while_its_log_is_loaded_again(tmp_path: Path) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log)
    before = opened.update()
    log.send("new", 1)
    opened.feed.rebuild()
    log.failures.append(unavailable())
    with pytest.raises(UnavailableError):
        opened.feed.update()
    assert opened.content() == before
    assert opened.update() == log.fold()
    opened.close()


def test_a_version_serves_at_the_start_while_the_log_does_not_respond(tmp_path: Path) -> None:
    log = make_log()
    first = LogStore(tmp_path, log)
    before = first.update()
    first.close()
    log.failures.append(unavailable())
    second = LogStore(tmp_path, log)
    assert second.action is StartAction.CONTINUE
    assert second.content() == before
    second.close()


@pytest.mark.parametrize("is_loaded", [True, False])
def test_the_feed_stops_at_a_message_that_it_cannot_take(tmp_path: Path, is_loaded: bool) -> None:
    log = FakeLog(1)
    opened = LogStore(tmp_path, log)
    if is_loaded:
        log.send("z", 0)
        opened.update()
    log.send("a", 1)
    log.send(1.5, 2)
    log.send("b", 3)
    place = f"store 'words': fake, partition 0, offset {1 + is_loaded}: field 'key'"
    for _ in range(2):
        with pytest.raises(DataError, match=place):
            opened.feed.update()
    if is_loaded:
        assert opened.content() == {"z": 0, "a": 1}
        assert opened.state.positions["0"] == "2"
        assert opened.feed.lag().behind == 2
    log.partitions["0"].messages[1 + is_loaded] = ("fixed", 2, False)
    assert opened.update() == log.fold()
    opened.close()


def test_a_key_of_another_type_after_a_restart_is_refused(tmp_path: Path) -> None:
    log = make_log()
    first = LogStore(tmp_path, log)
    first.update()
    first.close()
    log.send(7, "number")
    second = LogStore(tmp_path, log)
    with pytest.raises(DataError, match="offset"):
        second.feed.update()
    second.close()


def test_the_parts_of_a_store_have_all_messages_together(tmp_path: Path) -> None:
    log = FakeLog(5)
    for number in range(40):
        log.send(f"k{number}", number)
    for is_fixed in (True, False):
        found: dict[Any, Any] = {}
        for index in range(3):
            folder = tmp_path / f"{is_fixed}-{index}"
            folder.mkdir()
            part = LogStore(folder, log, partition=Partition(index, 3), is_fixed=is_fixed)
            content = part.update()
            assert not content.keys() & found.keys()
            assert part.feed.lag().behind == 0
            found |= content
            part.close()
        assert found == log.fold()


def test_a_partition_that_continues_another_is_read_after_it(tmp_path: Path) -> None:
    log = FakeLog(1)
    log.send("a", 1)
    opened = LogStore(tmp_path, log)
    opened.update()
    log.send("a", 2, "0")
    log.split("0", "1", "2")
    log.send("a", 3, "1")
    log.send("b", 4, "2")
    assert opened.update() == {"a": 3, "b": 4}
    assert opened.state.positions == {"0": FINISHED, "1": "1", "2": "1", "read_ms": "1000"}
    assert log.reads == ["0:0", "0:1", "1:0", "2:0"]
    opened.close()


def test_the_data_that_a_log_changes_is_loaded_first(tmp_path: Path) -> None:
    log = FakeLog()
    log.items = {"a": 0, "b": 0}
    log.send("a", 1)
    opened = LogStore(tmp_path, log)
    assert opened.update() == {"a": 1, "b": 0}
    opened.close()


@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_store_without_position_loads_the_data_that_a_log_changes(
    tmp_path: Path, bootstrap: bool
) -> None:
    log = FakeLog()
    log.items = {"a": 0}
    opened = LogStore(tmp_path, log, bootstrap=bootstrap)
    assert opened.update() == {"a": 0}
    assert opened.state.is_bootstrapped
    opened.close()


def test_an_idle_store_records_that_it_is_up_to_date(tmp_path: Path) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log)
    opened.update()
    opened.now_ms = 80_000_000
    opened.update()
    assert opened.state.updated_ms == 80_000_000
    assert opened.state.positions["read_ms"] == "80000000"
    opened.close()


def test_the_lag_counts_messages(tmp_path: Path) -> None:
    log = make_log()
    opened = LogStore(tmp_path, log)
    assert opened.feed.lag().behind == 10
    opened.update()
    assert opened.feed.lag().behind == 0
    assert opened.feed.lag().newest == " ".join(
        f"{name}:{len(each.messages)}" for name, each in log.partitions.items()
    )
    opened.close()


def test_markers_are_not_data_and_a_stream_without_end_has_no_seal(tmp_path: Path) -> None:
    log = make_log()
    log.end("v1")
    opened = LogStore(tmp_path, log)
    assert opened.update() == log.fold()
    with pytest.raises(InvalidRequestError, match="expected an input with the option dataset="):
        opened.feed.seal()
    opened.close()


def test_a_log_that_is_silent_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.adjunct.feeds.log_reader._SILENCE_SECONDS", 0)
    log = make_log()

    class Silent(FakeLogInput):
        def poll(self, positions: Any, partitions: Any) -> Any:
            return replace(super().poll(positions, ()), ended=frozenset())

    opened = LogStore(tmp_path, Silent(log))
    with pytest.raises(UnavailableError, match="no messages for 0 s from partition 0, 1"):
        opened.feed.update()
    opened.close()
