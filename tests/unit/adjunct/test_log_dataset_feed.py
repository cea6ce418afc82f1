"""Tests of stores that are filled with the datasets of a log."""

from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.definition import EngineType
from sleeper.adjunct.feeds.feed import StartAction
from sleeper.adjunct.versions.store import Store
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from tests.fake_log import FakeLog, unavailable
from tests.unit.adjunct.log_stores import LogStore

KINDS = pytest.mark.parametrize("kind", list(EngineType))


def send_dataset(log: FakeLog, name: str, count: int = 8, *ended: int) -> dict[str, Any]:
    """Sends a dataset; its marker only to the partitions `ended`, if any are given."""
    values = {f"k{number}": f"{name}-{number}" for number in range(count)}
    for key, value in values.items():
        log.send(key, value)
    log.end(name, *ended)
    return values


@KINDS
def test_a_dataset_replaces_the_one_before_as_a_whole(tmp_path: Path, kind: EngineType) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1", 10)
    opened = LogStore(tmp_path, log, is_bounded=True, kind=kind)
    assert opened.update() == first
    assert opened.state.dataset == "v1"
    assert opened.state.is_bootstrapped
    log.send("k0", "v2-0")
    assert opened.update() == first
    log.end("v2")
    assert opened.update() == {"k0": "v2-0"}
    assert opened.state.dataset == "v2"
    opened.close()


def test_the_marker_of_one_partition_does_not_switch(tmp_path: Path) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    second = send_dataset(log, "v2", 5, 0)
    log.send("k0", "third", 0)  # after the marker, so of the next dataset
    assert opened.update() == first
    assert opened.store.rows_building
    log.end("v2", 1)
    assert opened.update() == second
    log.end("v3")
    assert opened.update() == {"k0": "third"}
    opened.close()


def test_there_is_nothing_to_read_before_the_first_end(tmp_path: Path) -> None:
    log = FakeLog()
    send_dataset(log, "v1", 8, 1)
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.feed.update()
    with pytest.raises(UnavailableError, match="no complete version"):
        opened.content()
    opened.close()


@pytest.mark.parametrize("is_whole", [True, False])
def test_only_the_newest_complete_dataset_is_built_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    log = FakeLog()
    for name in ("v1", "v2", "v3"):
        expected = send_dataset(log, name, 4 + len(log.partitions["0"].messages))
    log.send("k9", "of the next")
    if not is_whole:
        log.trim(0, 1)
    builds: list[object] = []
    new_build = Store.new_build

    def count(store: Store) -> Any:
        builds.append(store)
        return new_build(store)

    monkeypatch.setattr(Store, "new_build", count)
    opened = LogStore(tmp_path, log, is_bounded=True)
    assert opened.update() == expected
    assert len(builds) == 2  # the dataset, and what is known of the next
    opened.close()


@KINDS
def test_a_restart_reads_the_dataset_from_its_beginning(tmp_path: Path, kind: EngineType) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True, kind=kind)
    opened.update()
    second = send_dataset(log, "v2", 5, 0)
    opened.update()
    opened.close()
    again = LogStore(tmp_path, log, is_bounded=True, kind=kind)
    if kind is EngineType.ROCKSDB:
        assert again.action is StartAction.CONTINUE
        assert again.update() == first
    log.end("v2", 1)
    assert again.update() == second
    again.close()


def test_a_marker_that_is_delivered_again_is_ignored(tmp_path: Path) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    log.end("v1", 0)
    assert opened.update() == first
    log.end("v1")
    second = send_dataset(log, "v2", 3)
    assert opened.update() == second
    opened.close()


def test_a_trimmed_dataset_is_skipped_and_the_former_one_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    opened.close()
    send_dataset(log, "v2")
    log.trim(0, len(log.partitions["0"].messages) - 2)  # lacks some of v2
    opened = LogStore(tmp_path, log, is_bounded=True)
    assert opened.update() == first
    assert "skips datasets that are not whole: fake, partition 0: messages were trim" in caplog.text
    third = send_dataset(log, "v3", 3)
    assert opened.update() == third
    assert opened.state.dataset == "v3"
    opened.close()


def test_a_log_that_lacks_the_beginning_of_a_dataset_does_not_serve_it(tmp_path: Path) -> None:
    log = FakeLog()
    send_dataset(log, "v1")
    log.trim(0, 1)
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.feed.update()
    with pytest.raises(UnavailableError, match="no complete version"):
        opened.content()
    assert opened.store.rows_building is None
    second = send_dataset(log, "v2", 3)
    assert opened.update() == second
    opened.close()


def test_partitions_that_lost_a_marker_are_aligned_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    send_dataset(log, "v2", 8, 0)
    log.end("v3")
    assert opened.update() == first
    assert "different markers: 'v2' in partition 0, 'v3' in partition 1" in caplog.text
    fourth = send_dataset(log, "v4", 3)
    assert opened.update() == fourth
    opened.close()


def test_a_dataset_is_sealed_by_hand(tmp_path: Path) -> None:
    log = FakeLog()
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.feed.update()
    with pytest.raises(InvalidRequestError, match="nothing of a next dataset was read"):
        opened.feed.seal()
    log.send("a", 1)
    opened.feed.update()
    opened.feed.seal()
    assert opened.content() == {"a": 1}
    assert opened.state.dataset == "sealed at 1970-01-01T00:00:01.000+00:00"
    log.send("b", 2)
    log.end("v2")
    assert opened.update() == {"b": 2}
    opened.close()


def test_a_rebuild_serves_the_newest_complete_dataset_again(tmp_path: Path) -> None:
    log = FakeLog()
    send_dataset(log, "v1")
    second = send_dataset(log, "v2", 3)
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    version = opened.store.serving
    log.send("k0", "next")
    opened.feed.update()
    opened.feed.rebuild()
    log.failures.append(unavailable())
    with pytest.raises(UnavailableError):
        opened.feed.update()
    assert opened.store.serving is version
    assert opened.update() == second
    assert opened.store.serving is not version
    log.end("v3")
    assert opened.update() == {"k0": "next"}
    opened.close()


def test_the_feed_stops_at_a_message_and_keeps_serving(tmp_path: Path) -> None:
    log = FakeLog(1)
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    log.send("a", 1)
    log.send(1.5, 2)
    log.end("v2")
    for _ in range(2):
        with pytest.raises(DataError, match=r"partition 0, offset 10: field 'key'"):
            opened.feed.update()
    assert opened.content() == first
    opened.close()


def test_a_full_disk_keeps_the_dataset_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FakeLog()
    first = send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    second = send_dataset(log, "v2", 20)

    def fail(*_arguments: object) -> None:
        raise UnavailableError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.adjunct.engines.rocksdb.RocksDbEngine.apply", fail)
        with pytest.raises(UnavailableError, match="no space"):
            opened.feed.update()
    assert opened.content() == first
    assert len(list((tmp_path / "words").glob("v-*"))) == 1
    assert opened.update() == second
    opened.close()


def test_a_closed_partition_needs_no_marker(tmp_path: Path) -> None:
    log = FakeLog(1)
    log.send("a", 1, "0")
    log.split("0", "1", "2")
    log.send("b", 2, "1")
    log.end("v1", "1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.feed.update()
    assert opened.store.current is None
    log.end("v1", "2")
    assert opened.update() == {"a": 1, "b": 2}
    opened.close()


def test_an_empty_dataset_is_a_dataset(tmp_path: Path) -> None:
    log = FakeLog()
    send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    log.end("v2")
    assert opened.update() == {}
    opened.close()


def test_an_idle_store_records_that_there_is_nothing_newer(tmp_path: Path) -> None:
    log = FakeLog()
    send_dataset(log, "v1")
    opened = LogStore(tmp_path, log, is_bounded=True)
    opened.update()
    opened.now_ms = 20_000_000
    opened.feed.update()
    assert opened.state.updated_ms == 20_000_000
    assert opened.state.positions["read_ms"] == "20000000"
    log.send("a", 1)
    opened.now_ms = 40_000_000
    opened.feed.update()
    # The saved position is before the message that was read since.
    assert opened.state.updated_ms == 40_000_000
    assert opened.state.positions["read_ms"] == "20000000"
    opened.close()


def test_without_bootstrap_the_next_dataset_after_the_saved_position_serves(
    tmp_path: Path,
) -> None:
    log = FakeLog()
    send_dataset(log, "v1")
    first = LogStore(tmp_path, log, is_bounded=True, bootstrap=False)
    first.update()
    first.close()
    again = LogStore(tmp_path, log, is_bounded=True, bootstrap=False, now_ms=10**9)
    assert again.action is StartAction.FOLLOW
    again.feed.update()
    assert again.store.current is None
    second = send_dataset(log, "v2", 3)
    assert again.update() == second
    again.close()
