"""Versions of a store with the dataset that is asked for, whatever the input has now."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct.contents.writers import KeyedRows
from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.enrichment import dataset_versions
from sleeper.adjunct.enrichment.dataset_versions import open_dataset
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.clock import system_clock
from sleeper.errors import StateMovedOnError, UnavailableError
from tests.clock import FakeClock

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
DEFINITION = StoreDefinition("accounts", "table:accounts")
Open = Callable[..., StoreVersion]


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})


def put(table: sleeper.Table, rows: dict[int, int]) -> str:
    table.ingest(pa.table({"id": [*rows], "n": [*rows.values()]}))
    return newest(table)


def newest(table: sleeper.Table) -> str:
    return open_input(table).newest() or ""


def open_input(table: sleeper.Table) -> TableInput:
    writer = partial(KeyedRows, "accounts")
    return TableInput(table._instance, table.name, writer, "test")


def content(version: StoreVersion) -> dict[int, Any]:
    return {key: value["n"] for key, value in version.scan()}


@pytest.fixture
def open_at(accounts: sleeper.Table, tmp_path: Path) -> Open:
    def opened(dataset: str, **options: Any) -> StoreVersion:
        source = partial(open_input, accounts)
        return open_dataset(DEFINITION, tmp_path, source, dataset, system_clock, **options)

    return opened


def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the datasets that are loaded as a whole from now on."""
    loaded: list[str] = []
    load = dataset_versions._load

    def recorded(store: Any, source: Any, dataset: str) -> int:
        loaded.append(dataset)
        return load(store, source, dataset)

    monkeypatch.setattr(dataset_versions, "_load", recorded)
    return loaded


def test_each_dataset_is_the_table_at_its_number(
    accounts: sleeper.Table, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loads(monkeypatch)
    first = put(accounts, {1: 10, 2: 20})
    second = put(accounts, {2: 21, 3: 30})
    accounts.delete([(1,)])
    third = newest(accounts)
    expected = {first: {1: 10, 2: 20}, second: {1: 10, 2: 21, 3: 30}, third: {2: 21, 3: 30}}
    kept = {number: open_at(number) for number in expected}
    for number, version in kept.items():
        assert content(version) == expected[number]
        assert version.state.dataset == number
    assert loaded == [first]  # then changes
    # Back again, while all are read: the versions are found.
    for number in (first, third, second):
        assert content(open_at(number)) == expected[number]
    kept.clear()
    # The first was deleted, and an earlier dataset cannot be made of changes.
    put(accounts, {4: 40})
    assert content(open_at(newest(accounts))) == {2: 21, 3: 30, 4: 40}
    assert content(open_at(first)) == expected[first]
    assert loaded == [first, first]


def test_a_table_whose_fields_changed_is_loaded(
    accounts: sleeper.Table, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loads(monkeypatch)
    first = put(accounts, {1: 10})
    open_at(first)
    accounts.add_field("note", "StringType")
    second = put(accounts, {2: 20})
    assert open_at(second).get(1) == {"n": 10, "note": None}
    assert open_at(first).get(1) == {"n": 10}
    assert loaded == [first, second, first]


def test_one_of_many_processes_builds_and_the_others_wait(
    accounts: sleeper.Table, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loads(monkeypatch)
    number = put(accounts, {key: key for key in range(1000)})
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(content(open_at(number)))))
        for _ in range(6)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [1000] * 6
    assert loaded == [number]


def test_a_process_that_builds_for_too_long_is_reported(
    accounts: sleeper.Table, open_at: Open, tmp_path: Path
) -> None:
    number = put(accounts, {1: 10})
    from sleeper.adjunct.versions.store import Store

    store = Store(DEFINITION, tmp_path, FakeClock(0))
    with pytest.raises(
        UnavailableError, match=r"waited 0\.2 s for dataset .* is in use by process"
    ):
        open_at(number, wait_seconds=0.2)
    store.close()
    assert content(open_at(number)) == {1: 10}


def test_a_failed_load_leaves_nothing_behind(
    accounts: sleeper.Table, open_at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = put(accounts, {1: 10})
    with monkeypatch.context() as patched:

        def fail(*_: object) -> None:
            raise UnavailableError("no space left on device")

        patched.setattr("sleeper.adjunct.engines.rocksdb.RocksDbEngine.load", fail)
        with pytest.raises(UnavailableError, match="no space"):
            open_at(number)
    assert not [*tmp_path.glob("accounts/v-*")]
    assert content(open_at(number)) == {1: 10}


def test_a_damaged_version_is_built_again(
    accounts: sleeper.Table, open_at: Open, tmp_path: Path
) -> None:
    number = put(accounts, {1: 10})
    open_at(number)
    (current,) = tmp_path.glob("accounts/v-*/data/CURRENT")
    current.write_text("garbage")
    assert content(open_at(number)) == {1: 10}


def test_a_dataset_that_the_table_does_not_keep_is_an_error(open_at: Open) -> None:
    with pytest.raises(StateMovedOnError):
        open_at("1000")


def test_a_kept_dataset_is_held(accounts: sleeper.Table) -> None:
    number = put(accounts, {1: 10})
    source = open_input(accounts)
    source.keep(number, "spark")
    source.keep(number, "spark")
    assert [(h.owner, h.version) for h in source.table.state.holds.all()] == [
        ("spark", int(number))
    ]
