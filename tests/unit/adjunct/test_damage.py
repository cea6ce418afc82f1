"""Damaged files, full disks and processes that die: a store answers correctly or not at all."""

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.adjunct.columns.lookup import open_view
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.adjunct.engines import memory
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.engines.memory import MemoryEngine
from sleeper.adjunct.engines.rocksdb import RocksDbEngine
from sleeper.adjunct.feeds.updater import StoreUpdater
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.requests import (
    Action,
    refuse_request,
    send_request,
    wait_until_done,
)
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.schema.model import PrimitiveType
from tests.full_disk import files_of_at_most
from tests.unit.adjunct.test_store import KEYS, LAYOUT, Stores, content, disk_stores, writes

__all__ = ["disk_stores"]


def damage(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x5A
    path.write_bytes(data)


def loaded_file(stores: Stores) -> Path:
    """Returns the largest file of the store's data."""
    files = (stores.folder / "accounts" / "v-1" / "data").glob("*.sst")
    return max(files, key=lambda each: each.stat().st_size)


def build_rows(stores: Stores, store: Store, keys: range) -> None:
    """Builds a version of rows with the field `n`."""
    layout = Layout(LAYOUT.keys, (StoredField("n", PrimitiveType.LONG),))
    values = ValueCodec(layout).encode_rows([pa.array(keys, pa.int64())], len(keys))
    rows = Writes([KEYS.encode(key) for key in keys], values)
    store.build([rows], lambda: replace(stores.state(), layout=layout))


def content_of(store: Store, low: int, high: int) -> dict[int, Any]:
    return dict(store.serving.scan(low, high))


def test_a_scan_does_not_end_at_a_damaged_block(disk_stores: Stores) -> None:
    store = disk_stores.open()
    build_rows(disk_stores, store, range(5_000))
    store.close()
    path = loaded_file(disk_stores)
    damage(path, path.stat().st_size // 2)
    again = disk_stores.open()
    with pytest.raises(DataError, match="block checksum mismatch"):
        content(again)
    assert content_of(again, 0, 10) == {key: {"n": key} for key in range(10)}
    with pytest.raises(DataError):
        open_view("accounts", again.serving)


def test_a_damaged_first_block_is_no_end_either(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({key: f"value {key}" for key in range(5_000)})], disk_stores.state)
    store.close()
    damage(loaded_file(disk_stores), 20)
    again = disk_stores.open()
    with pytest.raises(DataError, match="block checksum mismatch"):
        list(again.serving.scan(1, 2))


def test_a_damaged_file_is_no_full_disk(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    store.close()
    # The state is in the newest file.
    damage(max((disk_stores.folder / "accounts" / "v-1" / "data").glob("*.sst")), 5)
    again = disk_stores.open()
    assert again.current is None
    assert "block checksum mismatch" in (again.problem or "")


def test_the_name_of_a_deleted_version_is_not_used_again(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "old"})], disk_stores.state)
    store.discard()

    def parts() -> Iterator[Writes]:
        yield writes({1: "new"})
        reader = StoreReader(disk_stores.folder, "accounts")
        assert reader.current is None
        yield writes({2: "new"})

    store.build(parts(), disk_stores.state)
    assert [each.name for each in disk_stores.folder.glob("accounts/v-*")] == ["v-2"]


def test_a_version_that_was_deleted_in_part_is_not_found(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "old"})], disk_stores.state)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            store.discard()
    store.close()
    assert disk_stores.open().current is None


def test_changes_during_a_scan_are_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    engine.load([Writes([b"a"], [b"1"])], b"")
    writer = threading.Thread(target=engine.apply, args=([Writes([b"a", b"b"], [b"2", b"2"])], b""))

    def slow_sorted(values: dict[bytes, bytes]) -> list[bytes]:
        result = sorted(values)
        writer.start()
        writer.join(0.1)  # it waits for the scan
        return result

    with monkeypatch.context() as patch:
        patch.setattr(memory, "sorted", slow_sorted, raising=False)
        assert dict(engine.scan(b"", b"\xff")) == {b"a": b"1"}
    writer.join()
    assert dict(engine.scan(b"", b"\xff")) == {b"a": b"2", b"b": b"2"}


def test_the_size_in_memory_follows_the_changes() -> None:
    engine = MemoryEngine()
    engine.load([Writes([b"a", b"bb"], [b"1", b"22"])], b"")
    engine.apply([Writes([b"a", b"bb", b"c", b"d"], [b"333", None, b"4", None])], b"")
    copy = engine.fork(None)
    assert engine.size() == copy.size() == len(b"a333" + b"c4")


def test_a_store_whose_disk_is_full_at_the_end_is_unlocked(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)

    def fail(_: object) -> None:
        raise UnavailableError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(RocksDbEngine, "sync", fail)
        store.close()
    assert content(disk_stores.open()) == {1: "a"}


@pytest.mark.parametrize("next_write", ["changes", "positions"])
def test_a_store_goes_on_when_a_full_disk_has_space_again(
    disk_stores: Stores, next_write: str
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    reader = StoreReader(disk_stores.folder, "accounts")
    large = "x" * 300_000
    with files_of_at_most(200_000):
        for _ in range(2):
            with pytest.raises(UnavailableError, match="File too large"):
                store.apply([writes({2: large})], lambda: disk_stores.state("2"))
        assert content(store) == content(reader) == {1: "a"}
    if next_write == "positions":
        store.save_positions()
        assert store.saved_positions() == {"number": "1"}
    store.apply([writes({2: large})], lambda: disk_stores.state("2"))
    reader.refresh()
    assert content(store) == content(reader) == {1: "a", 2: large}
    assert reader.state == store.state == disk_stores.state("2")
    store.close()
    reader.close()
    assert content(disk_stores.open()) == {1: "a", 2: large}


def test_a_load_on_a_full_disk_leaves_no_files(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    with files_of_at_most(200_000), pytest.raises(UnavailableError, match="File too large"):
        store.build([writes({2: "x" * 300_000})], disk_stores.state)
    assert [each.name for each in disk_stores.folder.glob("accounts/v-*")] == ["v-1"]
    assert content(store) == {1: "a"}


def test_a_version_whose_switch_failed_does_not_serve_later(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)

    def fail(*_: object) -> None:
        raise UnavailableError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(StoreFolder, "switch", fail)
        with pytest.raises(UnavailableError) as kept:
            store.build([writes({1: "b"})], disk_stores.state)
    assert kept.value.__traceback__ is not None  # which refers to the version
    assert [each.name for each in disk_stores.folder.glob("accounts/v-*")] == ["v-1"]
    store.apply([writes({1: "c"})], lambda: disk_stores.state("2"))
    store.close()
    assert content(disk_stores.open()) == {1: "c"}


def test_a_reader_that_cannot_open_leaves_no_folder(
    disk_stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    store.close()
    (disk_stores.folder / "accounts" / "v-1" / "data" / "CURRENT").write_text("nothing")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(DataError):
        StoreReader(disk_stores.folder, "accounts")
    made = [each.relative_to(temporary).as_posix() for each in temporary.rglob("*")]
    assert sorted(made) == [f"sleeper-{os.getuid()}", f"sleeper-{os.getuid()}/adjunct-logs"]


def test_a_reader_needs_no_right_to_write(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    opened = os.open

    def open_on_a_read_only_disk(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", open_on_a_read_only_disk)
    reader = StoreReader(disk_stores.folder, "accounts")
    assert content(reader) == {1: "a"}
    assert reader.folder.is_locked()
    reader.close()


def test_a_file_system_without_locks_is_named(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with pytest.raises(UnavailableError, match=r"cannot lock .*No locks available"):
        disk_stores.open()


def test_a_view_is_durable_before_its_name(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    build_rows(disk_stores, store, range(2))
    steps: list[str] = []
    fsync, renamed = os.fsync, Path.rename

    def record_fsync(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def record_rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return renamed(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "rename", record_rename)
    open_view("accounts", store.serving)
    before = steps[: steps.index("rename")]
    assert {"values.arrow", "slots.npy"} <= set(before)


def test_each_refusal_reaches_the_process_that_asked(disk_stores: Stores) -> None:
    folder = disk_stores.open().folder
    assert folder is not None
    requests = [send_request(folder, Action.SEAL) for _ in range(2)]
    for request in requests:
        refuse_request(folder, request, f"no seal {request.id}")
    for request in requests:
        with pytest.raises(InvalidRequestError, match=request.id):
            wait_until_done(folder, request)
    assert not list(folder.path.glob("refused-*"))


class SealedFeed:
    """A feed whose log does not respond after a seal."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = True

    def seal(self) -> None:
        self.calls.append("seal")

    def rebuild(self) -> None:
        self.calls.append("rebuild")

    def update(self) -> int:
        self.calls.append("update")
        if self.fails:
            raise UnavailableError("no broker")
        return 0

    def lag(self) -> object:
        raise UnavailableError("no broker")


@pytest.mark.parametrize("action", list(Action))
def test_a_request_is_done_once_when_the_input_fails_after_it(
    disk_stores: Stores, action: Action
) -> None:
    store, feed = disk_stores.open(), SealedFeed()
    updater = StoreUpdater(store, feed)  # type: ignore[arg-type]
    assert store.folder is not None
    request = send_request(store.folder, action)
    with pytest.raises(UnavailableError):
        updater.update()
    feed.fails = False
    updater.update()
    assert feed.calls == [action.value, "update", "update"]
    assert wait_until_done(store.folder, request)


def test_a_reader_sees_what_went_from_the_log_to_files(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a", 2: "a"})], disk_stores.state)
    reader = StoreReader(disk_stores.folder, "accounts")
    store.apply([writes({1: "b"})], lambda: disk_stores.state("2"))
    reader.refresh()  # RocksDB has the log of this in memory
    store.apply([writes({1: "c", 2: "c"})], lambda: disk_stores.state("3"))
    store.save_positions()
    reader.refresh()
    assert reader.serving.get_many([1, 2]) == ["c", "c"]
    assert content(reader) == {1: "c", 2: "c"}
    assert reader.state == disk_stores.state("3")
    reader.close()
