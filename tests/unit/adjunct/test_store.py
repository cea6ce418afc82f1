"""A store: its versions, how they take each other's place, and what survives a crash."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import EngineType, Layout, StoreDefinition, StoredField, StoreState
from sleeper.adjunct.engines.engine import DeletedRange, Writes
from sleeper.adjunct.versions import store as store_module
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader
from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from sleeper.schema.model import PrimitiveType
from tests.clock import FakeClock

LAYOUT = Layout((StoredField("id", PrimitiveType.LONG),), None)
KEYS = KeyCodec("accounts", LAYOUT)


def writes(values: dict[int, Any], deleted: tuple[int, ...] = ()) -> Writes:
    keys = [KEYS.encode(key) for key in (*values, *deleted)]
    encoded = [ValueCodec.encode_document(each) for each in values.values()]
    return Writes(keys, [*encoded, *([None] * len(deleted))])


def deleted_range(low: int, high: int) -> Writes:
    return Writes(deleted_ranges=[DeletedRange(KEYS.encode(low), KEYS.encode(high))])


class Stores:
    """Opens the store of a test again and again."""

    def __init__(self, folder: Path, kind: EngineType) -> None:
        self.folder = folder
        self.definition = StoreDefinition("accounts", "table:accounts", kind)
        self.opened: list[Store] = []

    def open(self) -> Store:
        self.opened.append(Store(self.definition, self.folder, FakeClock(1_000)))
        return self.opened[-1]

    def state(self, dataset: str = "1") -> StoreState:
        state = StoreState("table:accounts", None, None, LAYOUT)
        return replace(state, dataset=dataset, positions={"number": dataset})


@pytest.fixture(params=list(EngineType))
def stores(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stores]:
    made = Stores(tmp_path, request.param)
    yield made
    for each in made.opened:
        each.close()


@pytest.fixture
def disk_stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path, EngineType.ROCKSDB)
    yield made
    for each in made.opened:
        each.close()


def content(store: Store | StoreReader) -> dict[int, Any]:
    return dict(store.serving.scan())


def test_a_version_is_visible_when_it_is_complete(stores: Stores) -> None:
    store = stores.open()

    def parts() -> Iterator[Writes]:
        yield writes({1: "a"})
        with pytest.raises(UnavailableError, match="'accounts' has no complete version yet"):
            _ = store.serving
        yield writes({2: "b"})

    assert store.build(parts(), stores.state) == 2
    assert content(store) == {1: "a", 2: "b"}


def test_the_former_version_serves_while_the_next_is_built(stores: Stores) -> None:
    store = stores.open()
    store.build([writes({1: "old", 2: "old"})], stores.state)

    def parts() -> Iterator[Writes]:
        yield writes({1: "new"})
        assert content(store) == {1: "old", 2: "old"}

    store.build(parts(), lambda: stores.state("2"))
    assert content(store) == {1: "new"}
    assert store.state is not None
    assert store.state.dataset == "2"


def test_a_build_that_fails_leaves_the_former_version(stores: Stores) -> None:
    store = stores.open()
    store.build([writes({1: "old"})], stores.state)

    def parts() -> Iterator[Writes]:
        yield writes({1: "new"})
        raise UnavailableError("the input does not respond")

    with pytest.raises(UnavailableError, match="does not respond"):
        store.build(parts(), lambda: stores.state("2"))
    assert content(store) == {1: "old"}
    assert [each.name for each in stores.folder.glob("accounts/v-*")] in ([], ["v-1"])


def test_an_iterator_reads_its_version_after_a_switch(stores: Stores) -> None:
    store = stores.open()
    store.build([writes({1: "old", 2: "old", 3: "old"})], stores.state)
    found = store.serving.scan()
    assert next(found) == (1, "old")
    store.build([writes({1: "new"})], lambda: stores.state("2"))
    assert list(found) == [(2, "old"), (3, "old")]


def test_an_iterator_does_not_see_later_changes(stores: Stores) -> None:
    store = stores.open()
    store.build([writes({1: "old", 2: "old", 3: "old"})], stores.state)
    found = store.serving.scan()
    assert next(found) == (1, "old")
    store.apply([writes({2: "new", 4: "new"}, deleted=(3,))], stores.state)
    assert list(found) == [(2, "old"), (3, "old")]
    assert content(store) == {1: "old", 2: "new", 4: "new"}


def test_the_last_of_several_writes_of_a_key_counts(stores: Stores) -> None:
    store = stores.open()
    store.build([writes(dict.fromkeys(range(10), "old"))], stores.state)
    changes = [writes({5: "a"}), deleted_range(4, 8), writes({6: "b"}), writes({6: "c"}, (7, 9))]
    store.apply(changes, stores.state)
    assert content(store) == {0: "old", 1: "old", 2: "old", 3: "old", 6: "c", 8: "old"}


def test_unsorted_data_is_built(stores: Stores) -> None:
    store = stores.open()
    parts = [writes({9: "a", 3: "b"}), writes({5: "c"}, deleted=(9,)), writes({3: "d"})]
    store.build(parts, stores.state, is_sorted=False)
    assert content(store) == {3: "d", 5: "c"}


def test_many_changes_are_visible_all_at_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_ATOMIC_BYTES", 100)
    store = stores.open()
    store.build([writes(dict.fromkeys(range(100), "old"))], stores.state)
    former = store.serving

    def parts() -> Iterator[Writes]:
        for key in range(0, 100, 10):
            yield writes(dict.fromkeys(range(key, key + 10), "new"))
            assert set(content(store).values()) == {"old"}

    assert store.apply(parts(), lambda: stores.state("2")) == 100
    assert content(store) == dict.fromkeys(range(100), "new")
    assert store.state is not None
    assert store.state.positions == {"number": "2"}
    assert set(dict(former.scan()).values()) == {"old"}


def test_changes_that_fail_leave_nothing(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (1, 10**9):
        monkeypatch.setattr(store_module, "_ATOMIC_BYTES", limit)
        store = stores.open()
        store.build([writes({1: "old"})], stores.state)

        def parts() -> Iterator[Writes]:
            yield writes({1: "new"})
            raise UnavailableError("the input does not respond")

        with pytest.raises(UnavailableError):
            store.apply(parts(), lambda: stores.state("2"))
        assert content(store) == {1: "old"}
        store.close()


def test_a_store_on_disk_is_found_again(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    store.apply([writes({2: "b"})], lambda: disk_stores.state("2"))
    store.close()
    again = disk_stores.open()
    assert content(again) == {1: "a", 2: "b"}
    assert again.state == disk_stores.state("2")
    assert again.problem is None


def test_a_store_in_memory_is_not_found(tmp_path: Path) -> None:
    stores = Stores(tmp_path, EngineType.MEMORY)
    store = stores.open()
    store.build([writes({1: "a"})], stores.state)
    store.save_positions()
    store.close()
    again = stores.open()
    assert again.current is None
    assert again.saved_positions() == {"number": "1"}
    again.close()


def test_a_version_that_was_sealed_takes_its_place_after_a_crash(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    store.build([writes({1: "old"})], disk_stores.state)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreFolder, "switch", crash)
        # A process that dies deletes nothing.
        patch.setattr(StoreFolder, "delete", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            store.build([writes({1: "new"})], lambda: disk_stores.state("2"))
    store.close()
    again = disk_stores.open()
    assert content(again) == {1: "new"}
    assert again.folder is not None
    assert str(again.folder.current()) == "v-2"
    assert not (disk_stores.folder / "accounts" / "v-1").exists()


def test_a_version_that_was_not_sealed_is_deleted(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "old"})], disk_stores.state)
    store.close()
    half = disk_stores.folder / "accounts" / "v-2" / "data"
    half.mkdir(parents=True)
    (half / "load-0.sst").write_bytes(b"half")
    again = disk_stores.open()
    assert content(again) == {1: "old"}
    assert not half.exists()


@pytest.mark.parametrize("damage", ["no data", "no state", "pointer", "unsealed"])
def test_a_damaged_store_has_a_problem_and_no_version(disk_stores: Stores, damage: str) -> None:
    store = disk_stores.open()
    store.build([writes({1: "old"})], disk_stores.state)
    store.close()
    folder = disk_stores.folder / "accounts"
    if damage == "no data":
        (folder / "v-1" / "data" / "CURRENT").write_text("nothing")
    elif damage == "no state":
        for each in (folder / "v-1" / "data").iterdir():
            each.unlink()
    elif damage == "pointer":
        (folder / "current").write_text("../../etc")
    else:
        (folder / "v-1" / "sealed").unlink()
    again = disk_stores.open()
    assert again.current is None
    if damage != "unsealed":
        assert again.problem is not None
    assert not (folder / "v-1").exists()


def test_one_process_fills_a_store(stores: Stores) -> None:
    stores.open()
    with pytest.raises(ConflictError, match=f"in use by process {os.getpid()}"):
        stores.open()


def test_another_folder_is_not_overwritten(disk_stores: Stores) -> None:
    (disk_stores.folder / "accounts").mkdir()
    (disk_stores.folder / "accounts" / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidRequestError, match=r"is not the folder of a store: it has .thesis"):
        disk_stores.open()
    assert (disk_stores.folder / "accounts" / "thesis.txt").exists()


def test_a_store_on_disk_needs_a_path() -> None:
    definition = StoreDefinition("accounts", "table:accounts")
    with pytest.raises(InvalidRequestError, match="store 'accounts' has no path"):
        Store(definition, None, FakeClock(1_000))


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a" * 65, "a\nb"])
def test_a_name_is_that_of_a_file(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="store name"):
        StoreDefinition(name, "table:accounts")


def test_a_reader_of_another_process_sees_changes_and_versions(disk_stores: Stores) -> None:
    store = disk_stores.open()
    store.build([writes({1: "a"})], disk_stores.state)
    reader = StoreReader(disk_stores.folder, "accounts")
    store.apply([writes({2: "b"}), deleted_range(1, 2)], lambda: disk_stores.state("2"))
    assert content(reader) == {1: "a"}
    reader.refresh()
    assert content(reader) == {2: "b"}
    assert reader.state == disk_stores.state("2")
    store.build([writes({3: "c"})], lambda: disk_stores.state("3"))
    assert content(reader) == {2: "b"}
    # The version that the reader has stays until it closes it.
    assert (disk_stores.folder / "accounts" / "v-1").exists()
    reader.refresh()
    assert not (disk_stores.folder / "accounts" / "v-1").exists()
    assert content(reader) == {3: "c"}
    store.build([writes({4: "d"})], lambda: disk_stores.state("4"))
    assert sorted(each.name for each in disk_stores.folder.glob("accounts/v-*")) == ["v-2", "v-3"]
    reader.close()
    # The last reader of a version that was replaced deletes it.
    assert [each.name for each in disk_stores.folder.glob("accounts/v-*")] == ["v-3"]


def test_a_reader_without_a_complete_version_has_no_answer(disk_stores: Stores) -> None:
    store = disk_stores.open()
    reader = StoreReader(disk_stores.folder, "accounts")

    def parts() -> Iterator[Writes]:
        yield writes({1: "a"})
        reader.refresh()
        with pytest.raises(UnavailableError, match="has no complete version"):
            _ = reader.serving

    store.build(parts(), disk_stores.state)
    reader.refresh()
    assert content(reader) == {1: "a"}
    reader.close()


def test_data_is_durable_before_the_name_of_the_version(
    disk_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_stores.open()
    steps: list[str] = []
    fsync, replaced = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append(f"fsync {path.relative_to(disk_stores.folder)}")
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        steps.append(f"replace {target.name}")
        replaced(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    sync = _recorded(steps, "sync of the engine")
    monkeypatch.setattr("sleeper.adjunct.engines.rocksdb.RocksDbEngine.sync", sync)
    store.build([writes({1: "a"})], disk_stores.state)
    assert steps == [
        "fsync accounts",
        "fsync accounts/v-1",
        "sync of the engine",
        "fsync accounts/v-1/data",
        "fsync accounts/v-1/sealed.new",
        "replace sealed",
        "fsync accounts/v-1",
        "fsync accounts/current.new",
        "replace current",
        "fsync accounts",
    ]


def _recorded(steps: list[str], text: str) -> Callable[[object], None]:
    from sleeper.adjunct.engines.rocksdb import RocksDbEngine

    real = RocksDbEngine.sync

    def sync(self: Any) -> None:
        steps.append(text)
        real(self)

    return sync
