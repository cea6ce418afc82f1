"""`AdjunctStore` over a table."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.statestore.store import StateStore

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}, {"name": "n", "type": "LongType"}],
}


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})
    table.ingest(rows({1: ("Ann", 10), 2: ("Bob", 20), 3: ("Cid", 30)}))
    return table


def rows(values: dict[int, tuple[str, int]]) -> pa.Table:
    names, numbers = [name for name, _ in values.values()], [n for _, n in values.values()]
    return pa.table({"id": list(values), "name": names, "n": numbers})


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def store(instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path) -> Any:
    with AdjunctStore.open(
        "accounts", "table:accounts", tmp_path, instance=instance, refresh_seconds=None
    ) as opened:
        yield opened


def test_keys_of_times_and_decimals(instance: sleeper.Instance, tmp_path: Path) -> None:
    money = {"DecimalType": {"precision": 9, "scale": 2}}
    keys = [{"name": "at", "type": "TimestampType"}, {"name": "fare", "type": money}]
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    for name, row_keys in {"one": keys[:1], "two": keys}.items():
        values = [*keys[len(row_keys) :], {"name": "n", "type": "LongType"}]
        schema = {"rowKeyFields": row_keys, "valueFields": values}
        table = instance.create_table(name, schema, {"sleeper.table.rows": "latest"})
        rows = [{"at": noon + timedelta(n), "fare": Decimal(n) / 4, "n": n} for n in range(-2, 5)]
        table.ingest(pa.Table.from_pylist(rows, table.arrow_schema))
        with AdjunctStore.open(
            name, f"table:{name}", tmp_path, instance=instance, refresh_seconds=None
        ) as opened:
            key: Any = noon if name == "one" else (noon, 0)
            assert opened.get(key)["n"] == 0
            first = noon - timedelta(2) if name == "one" else (noon - timedelta(2), Decimal("-0.5"))
            assert next(found for found, _ in opened.all()) == first
            if name == "one":
                days = ["2013-01-01T12:00:00Z", date(2013, 1, 4)]
                assert [value["n"] for _, value in opened.range(*days)] == [0, 1, 2]
                table.delete(ranges=[("2013-01-01", "2013-01-03")])
                opened.refresh()
                assert [value["n"] for _, value in opened.all()] == [-2, -1, 2, 3, 4]
            else:
                table.delete(keys=[(noon, 0)])
                opened.refresh()
                assert opened.get(key) is None


def test_a_lookup_returns_the_other_fields(store: AdjunctStore) -> None:
    assert store.get(2) == {"name": "Bob", "n": 20}
    assert store.get(9) is None
    assert store.get_many([3, 9, 1]) == [
        {"name": "Cid", "n": 30},
        None,
        {"name": "Ann", "n": 10},
    ]
    assert [key for key, _ in store.range(2)] == [2, 3]
    assert [key for key, _ in store.range(None, 2)] == [1]
    assert [key for key, _ in store.range(2, 2)] == []
    assert dict(store.all())[3] == {"name": "Cid", "n": 30}


def test_many_keys_are_found_in_their_order(store: AdjunctStore) -> None:
    keys = [3, 1, 99, 2] * 50
    assert store.get_many(keys) == [store.get(key) for key in keys]


def test_a_refresh_takes_the_changes(store: AdjunctStore, accounts: sleeper.Table) -> None:
    accounts.ingest(rows({2: ("Bill", 21), 4: ("Dan", 40)}))
    accounts.delete(keys=[[1]])
    assert store.get(4) is None
    assert store.refresh() == 3
    assert dict(store.all()) == {
        2: {"name": "Bill", "n": 21},
        3: {"name": "Cid", "n": 30},
        4: {"name": "Dan", "n": 40},
    }
    accounts.delete(ranges=[(3, None)])
    store.refresh()
    assert [key for key, _ in store.all()] == [2]
    assert store.refresh() == 0


def test_the_status_has_the_position(store: AdjunctStore, accounts: sleeper.Table) -> None:
    accounts.ingest(rows({4: ("Dan", 40)}))
    status = store.status()
    assert status.name == "accounts"
    assert status.input == "table:accounts"
    assert (status.lag, status.newest) == (1, str(accounts.version))
    assert (status.is_serving, status.is_filling) == (True, True)
    assert (status.bootstrapped, status.incomplete) == (True, False)
    assert status.bytes > 0
    store.refresh()
    assert store.status().lag == 0
    assert store.status().offset["number"] == str(accounts.version)
    before = store.status().offset["number"]
    accounts.compact(full=True)
    status = store.status()
    assert (status.lag, status.offset["number"]) == (0, before)
    assert status.newest == str(accounts.version) != before
    store.refresh()
    assert store.status().offset["number"] == str(accounts.version)
    # Other fields change the rows of the store.
    accounts.add_field("note", "StringType")
    assert store.status().lag == 1


def test_a_store_follows_by_itself(
    instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path
) -> None:
    with AdjunctStore.open(
        "accounts", "table:accounts", tmp_path, instance=instance, refresh_seconds=0.01
    ) as store:
        accounts.ingest(rows({4: ("Dan", 40)}))
        wait_until(lambda: store.get(4) is not None)


def test_a_table_that_replaces_all_rows_is_loaded_again(
    store: AdjunctStore, accounts: sleeper.Table
) -> None:
    before = accounts.version
    accounts.ingest(rows({4: ("Dan", 40)}))
    store.refresh()
    accounts.restore(before)
    store.refresh()
    assert [key for key, _ in store.all()] == [1, 2, 3]


def test_new_fields_are_in_values(store: AdjunctStore, accounts: sleeper.Table) -> None:
    accounts.add_field("city", "StringType", default="Rome")
    store.refresh()
    assert store.get(1) == {"name": "Ann", "n": 10, "city": "Rome"}


def test_a_snapshot_table_is_switched_at_its_publication(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("prices", SCHEMA, {"sleeper.table.type": "snapshot"})
    where = {"instance": instance, "refresh_seconds": None, "bootstrap_seconds": 0}
    with pytest.raises(UnavailableError, match="table:prices has no complete dataset after 0 s"):
        AdjunctStore.open("prices", "table:prices", tmp_path, **where)  # type: ignore[arg-type]
    table.ingest(rows({1: ("a", 1), 2: ("b", 2)}))
    with AdjunctStore.open("prices", "table:prices", tmp_path, **where) as store:  # type: ignore[arg-type]
        first = store.status().version
        found = store.all()
        next(found)
        table.ingest(rows({2: ("c", 3)}))
        assert store.refresh() == 1
        assert dict(store.all()) == {2: {"name": "c", "n": 3}}
        assert dict(found) == {2: {"name": "b", "n": 2}}
        assert store.status().version != first


def test_a_store_of_a_partition_has_its_keys(
    instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path
) -> None:
    accounts.ingest(rows({key: (f"n{key}", key) for key in range(-50, 50)}))
    found = []
    for index in range(3):
        with AdjunctStore.open(
            f"part-{index}", "table:accounts", tmp_path, instance=instance, partition=f"{index}/3"
        ) as store:
            part = [key for key, _ in store.all()]
            assert part
            found += part
    assert sorted(found) == list(range(-50, 50))


def test_a_refresh_without_changes_reads_the_log_once(
    store: AdjunctStore, instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    real = StateStore.reading

    def reading(self: StateStore, *arguments: Any, **named: Any) -> Any:
        reads.append(arguments)
        return real(self, *arguments, **named)

    monkeypatch.setattr(StateStore, "reading", reading)
    store.refresh()
    assert len(reads) == 1


def test_a_store_serves_while_its_input_does_not_respond(
    instance: sleeper.Instance,
    accounts: sleeper.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_store() -> AdjunctStore:
        return AdjunctStore.open(
            "accounts",
            "table:accounts",
            tmp_path,
            instance=instance,
            refresh_seconds=None,
            bootstrap_seconds=0,
        )

    open_store().close()

    def fail(*_: object) -> None:
        raise UnavailableError("the log does not respond")

    monkeypatch.setattr("sleeper.adjunct.inputs.table.TableInput.inspect", fail)
    with open_store() as store:
        assert store.get(1) == {"name": "Ann", "n": 10}
        assert store.status().problem == "the log does not respond"
        with pytest.raises(UnavailableError, match="does not respond"):
            store.refresh()
        monkeypatch.setattr("sleeper.adjunct.inputs.table.TableInput.newest_number", fail)
        assert store.status().lag is None
        monkeypatch.undo()
        store.refresh()
        assert store.status().problem is None


def test_an_unknown_table_is_an_error(instance: sleeper.Instance, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        AdjunctStore.open("a", "table:nothing", tmp_path, instance=instance)
    # The store is free again.
    with pytest.raises(NotFoundError, match="nothing"):
        AdjunctStore.open("a", "table:nothing", tmp_path, instance=instance)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"input": "table"}, "unknown input 'table' "),
        ({"input": "ftp://x"}, "unknown input 'ftp://x' "),
        ({"type": "disk"}, "store type 'disk' .*rocksdb, memory"),
        ({"partition": "4/4"}, "partition 4/4"),
        ({"partition": "x"}, "partition 'x' .*INDEX/COUNT"),
        ({"max_age": "soon"}, "maximum age 'soon'"),
        ({"name": "../x"}, "store name '../x'"),
        ({"path": None}, "store 'accounts' has no path"),
        ({"input": None, "path": None}, "no input and no path"),
    ],
)
def test_bad_arguments_are_refused(
    instance: sleeper.Instance, tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    usual = {"name": "accounts", "input": "table:accounts", "path": tmp_path, "instance": instance}
    with pytest.raises(InvalidRequestError, match=problem):
        AdjunctStore.open(**{**usual, **arguments})


def test_a_closed_store_refuses_calls(store: AdjunctStore) -> None:
    store.close()
    for call in (lambda: store.get(1), store.refresh, store.status):
        with pytest.raises(InvalidRequestError, match="store 'accounts' is closed"):
            call()
    store.close()


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_refresh_period_has_to_be_positive(
    instance: sleeper.Instance, accounts: sleeper.Table, tmp_path: Path, seconds: float
) -> None:
    with pytest.raises(InvalidRequestError, match=f"refresh period {seconds} s .expected more"):
        AdjunctStore.open(
            "accounts", "table:accounts", tmp_path, instance=instance, refresh_seconds=seconds
        )


def test_a_similar_name_is_suggested_for_a_store_that_does_not_exist(
    store: AdjunctStore, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"no store 'acounts' at .*did you mean accounts\?"):
        AdjunctStore.open("acounts", path=tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_age", 3600, "maximum age 3600 .expected a duration such as 1d"),
        ("partition", (0, 4), r"partition \(0, 4\) .expected INDEX/COUNT"),
    ],
)
def test_an_argument_that_is_not_text_is_refused(
    instance: sleeper.Instance,
    accounts: sleeper.Table,
    tmp_path: Path,
    name: str,
    value: Any,
    message: str,
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        AdjunctStore.open(
            "accounts", "table:accounts", tmp_path, instance=instance, **{name: value}
        )


def test_the_time_of_failed_updates_counts_as_waiting(
    store: AdjunctStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("sleeper.adjunct.feeds.updater.time.monotonic", lambda: now[0])
    tries = 0

    def fail(_source: object) -> None:
        nonlocal tries
        tries += 1
        now[0] += 30
        raise UnavailableError("no answer")

    monkeypatch.setattr("sleeper.adjunct.feeds.dataset_feed.DatasetFeed.update", fail)
    with pytest.raises(UnavailableError, match="no answer"):
        AdjunctStore.open("files", f"files:{tmp_path}", tmp_path, bootstrap_seconds=60)
    assert tries == 2


def test_an_instance_opens_its_stores_in_its_own_folder(
    instance: sleeper.Instance, accounts: sleeper.Table
) -> None:
    with instance.adjunct_store("accounts", "table:accounts", refresh_seconds=None) as store:
        assert store.get(1) == {"name": "Ann", "n": 10}
        with instance.adjunct_store("accounts", refresh_seconds=None) as reader:
            assert reader.get(2) == {"name": "Bob", "n": 20}
        accounts.delete([[1]])
        assert (store.refresh(), store.get(1)) == (1, None)
