"""Stores that threads and processes of a machine share."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.adjunct import open_store as open_store_module
from sleeper.adjunct.versions.store import Store
from sleeper.errors import ConflictError, NotFoundError, UnavailableError
from tests.unit.adjunct.store_process import StoreProcess

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})
    add(table, 1)
    return table


@pytest.fixture
def where(instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "accounts",
        "input": "table:accounts",
        "path": tmp_path / "stores",
        "instance": instance._ports.where,
        "refresh_seconds": 0.02,
        "broadcast": True,
    }


def add(table: sleeper.Table, key: int, name: str | None = None) -> None:
    table.ingest(pa.table({"id": [key], "name": [name or f"name-{key}"]}))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def opened_twice(where: dict[str, Any]) -> Iterator[tuple[StoreProcess, AdjunctStore]]:
    """A store that another process fills, and that this one reads."""
    with StoreProcess(**where) as process:
        assert process.answer() == "open"
        with AdjunctStore.open(**where) as store:
            yield process, store


@pytest.mark.parametrize("kind", ["rocksdb", "memory"])
def test_threads_share_one_store(
    where: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = open_store_module.Store

    def count(*arguments: Any) -> Store:
        opened.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(open_store_module, "Store", count)
    with ExitStack() as stack, ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: AdjunctStore.open(**where, type=kind), range(8))
        stores = [stack.enter_context(each) for each in found]
        assert len(opened) == 1
        assert len({id(each._store.serving) for each in stores}) == 1
        stores[0].close()
        stores[0].close()
        assert [each.get(1) for each in stores[1:]] == [{"name": "name-1"}] * 7
    # The last one closed it, so that any process may fill it.
    with AdjunctStore.open(**{**where, "broadcast": False}, type=kind) as store:
        assert store.status().is_filling


def test_a_store_outlives_the_instance_of_its_first_opening(
    where: dict[str, Any], accounts: sleeper.Table
) -> None:
    first = sleeper.open_instance(where["instance"])
    one = AdjunctStore.open(**{**where, "instance": first})
    with AdjunctStore.open(**where) as other:
        one.close()
        first.close()
        add(accounts, 2)
        wait_until(lambda: other.get(2) is not None)


def test_other_settings_are_refused(where: dict[str, Any]) -> None:
    expected = "open in this process with other settings"
    with AdjunctStore.open(**where), pytest.raises(ConflictError, match=expected):
        AdjunctStore.open(**where, partition="0/2")
    # The refused opening is not counted.
    with AdjunctStore.open(**where, partition="0/1") as store:
        assert store.status().is_filling


def test_an_opening_that_fails_leaves_nothing(where: dict[str, Any]) -> None:
    with pytest.raises(NotFoundError):
        AdjunctStore.open(**{**where, "input": "table:nothing"})
    with AdjunctStore.open(**where) as store:
        assert store.get(1) == {"name": "name-1"}


@pytest.mark.slow
def test_a_second_process_reads_what_the_first_one_fills(
    where: dict[str, Any], accounts: sleeper.Table
) -> None:
    with opened_twice(where) as (process, store):
        assert process.ask("filling") is True
        status = store.status()
        assert (status.is_filling, status.is_serving, status.input) == (
            False,
            True,
            "table:accounts",
        )
        assert store.get(1) == {"name": "name-1"}
        add(accounts, 2)
        wait_until(lambda: store.get(2) is not None)
        accounts.restore(accounts.version - 1)
        wait_until(lambda: store.get(2) is None)


@pytest.mark.slow
def test_a_reader_takes_over_when_the_other_process_is_killed(
    where: dict[str, Any], accounts: sleeper.Table
) -> None:
    with opened_twice(where) as (process, store), StoreProcess(**where) as third:
        assert third.answer() == "open"
        found = store.all()
        assert next(found) == (1, {"name": "name-1"})
        process.kill()
        wait_until(lambda: store.status().is_filling or bool(third.ask("filling")))
        assert store.status().is_filling != third.ask("filling")
        assert store.get(1) == {"name": "name-1"}
        for key in range(2, 6):
            add(accounts, key)
            wait_until(lambda key=key: store.get(key) is not None)  # type: ignore[misc]
            wait_until(lambda key=key: third.ask("get", key) is not None)  # type: ignore[misc]
        assert list(found) == []


@pytest.mark.slow
def test_a_reader_takes_over_when_the_other_store_is_closed(
    where: dict[str, Any], accounts: sleeper.Table
) -> None:
    first = AdjunctStore.open(**where)
    with StoreProcess(**where) as process:
        assert process.answer() == "open"
        assert process.ask("filling") is False
        first.close()
        wait_until(lambda: bool(process.ask("filling")))
        add(accounts, 2)
        wait_until(lambda: process.ask("get", 2) == {"name": "name-2"})
        with AdjunctStore.open(**where) as again:
            assert not again.status().is_filling
            assert again.get(2) == {"name": "name-2"}


@pytest.mark.slow
def test_a_reader_serves_while_it_takes_over(
    where: dict[str, Any], accounts: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_twice({**where, "refresh_seconds": None}) as (process, store):
        process.kill()
        answers = []
        real = Store.__init__

        def look_up(self: Store, *arguments: Any) -> None:
            real(self, *arguments)
            answers.append(store.get(1))

        monkeypatch.setattr(Store, "__init__", look_up)
        store.refresh()
        assert store.status().is_filling
        assert answers == [{"name": "name-1"}]


@pytest.mark.slow
def test_another_input_is_refused_at_once(
    where: dict[str, Any], instance: sleeper.Instance
) -> None:
    instance.create_table("others", SCHEMA)
    with StoreProcess(**where) as process:
        assert process.answer() == "open"
        expected = (
            rf"in use by process {process.pid} with input table:accounts \(expected table:others"
        )
        with pytest.raises(ConflictError, match=expected):
            AdjunctStore.open(**{**where, "input": "table:others"})
        with pytest.raises(ConflictError, match=f"in use by process {process.pid}$"):
            AdjunctStore.open(**{**where, "broadcast": False})


@pytest.mark.slow
def test_a_reader_waits_for_a_complete_copy(
    where: dict[str, Any], instance: sleeper.Instance
) -> None:
    table = instance.create_table("prices", SCHEMA, {"sleeper.table.type": "snapshot"})
    where = {**where, "input": "table:prices"}
    with StoreProcess(**where) as process:
        # The other process has the lock, and waits for the first dataset.
        wait_until((where["path"] / "accounts" / "lock").exists)
        with pytest.raises(UnavailableError, match="has no complete copy after 0 s"):
            AdjunctStore.open(**where, bootstrap_seconds=0)
        with ThreadPoolExecutor(1) as threads:
            opening = threads.submit(AdjunctStore.open, **where)
            add(table, 7)
            with opening.result(60) as store:
                assert process.answer() == "open"
                assert dict(store.all()) == {7: {"name": "name-7"}}
