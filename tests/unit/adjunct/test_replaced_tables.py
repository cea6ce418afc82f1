"""Tables that change under a store that follows them: created again, renamed, with other fields."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.errors import NotFoundError
from sleeper.query.changes.reader import ChangeReader
from tests.tables.opened import compact_fully
from tests.unit.adjunct.test_adjunct_store import SCHEMA, accounts, rows, store

__all__ = ["accounts", "store"]
LATEST = {"sleeper.table.rows": "latest"}
SNAPSHOT = {"sleeper.table.type": "snapshot"}


def open_store(instance: sleeper.Instance, path: Path, **arguments: Any) -> AdjunctStore:
    return AdjunctStore.open(
        "accounts", "table:accounts", path, instance=instance, refresh_seconds=None, **arguments
    )


@pytest.mark.parametrize("properties", [LATEST, SNAPSHOT])
def test_a_table_that_was_created_again_is_loaded_by_an_open_store(
    instance: sleeper.Instance, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = instance.create_table("accounts", SCHEMA, properties)
    table.ingest(rows({1: ("Ann", 10)}))
    with open_store(instance, tmp_path) as opened:
        instance.delete_table("accounts")
        with pytest.raises(NotFoundError, match="accounts"):
            opened.refresh()
        assert opened.get(1) == {"name": "Ann", "n": 10}
        assert "accounts" in (opened.status().problem or "")
        instance.create_table("accounts", SCHEMA, properties).ingest(rows({2: ("Bob", 20)}))
        opened.refresh()
        assert dict(opened.all()) == {2: {"name": "Bob", "n": 20}}
        assert opened.status().problem is None


@pytest.mark.parametrize("properties", [LATEST, SNAPSHOT])
def test_a_table_that_was_created_again_meanwhile_is_loaded_at_the_start(
    instance: sleeper.Instance, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = instance.create_table("accounts", SCHEMA, properties)
    table.ingest(rows({1: ("Ann", 10)}))
    open_store(instance, tmp_path).close()
    instance.delete_table("accounts")
    # It has as many transactions as the former one.
    instance.create_table("accounts", SCHEMA, properties).ingest(rows({2: ("Bob", 20)}))
    with open_store(instance, tmp_path) as opened:
        assert dict(opened.all()) == {2: {"name": "Bob", "n": 20}}


@pytest.mark.parametrize("change", ["add", "rename", "drop", "widen"])
def test_fields_that_change_during_an_update_do_not_mix(
    store: AdjunctStore,
    accounts: sleeper.Table,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    accounts.ingest(rows({4: ("Dan", 40)}))

    def change_before(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        row: dict[str, list[object]] = {"id": [5], "name": ["Eve"], "n": [50]}
        if change == "add":
            accounts.add_field("a", "StringType", default="none")
            row["a"] = ["x"]
        elif change == "rename":
            accounts.rename_field("name", "called")
            row["called"] = row.pop("name")
        elif change == "drop":
            accounts.drop_field("name")
            del row["name"]
        else:
            accounts.widen_field("n", "DoubleType")
            row["n"] = [50.0]
        accounts.ingest(pa.table(row))
        return ChangeReader(*arguments, **named)

    monkeypatch.setattr("sleeper.adjunct.inputs.table.ChangeReader", change_before)
    store.refresh()
    fields = {tuple(value) for _, value in store.all()}
    assert len(fields) == 1
    store.refresh()
    found = accounts.query().to_arrow().to_pylist()
    assert dict(store.all()) == {row.pop("id"): row for row in found}


def test_deletes_in_rows_are_followed_after_a_field_was_dropped(
    store: AdjunctStore, accounts: sleeper.Table
) -> None:
    accounts.drop_field("n")
    accounts.ingest(
        pa.table({"id": [1, 2], "name": ["Ann", "Eve"], "op": ["d", "u"]}), op_column="op"
    )
    store.refresh()
    assert dict(store.all()) == {2: {"name": "Eve"}, 3: {"name": "Cid"}}


def test_a_delete_after_a_publication_reaches_the_store(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("accounts", SCHEMA, SNAPSHOT)
    table.ingest(rows({1: ("Ann", 10), 2: ("Bob", 20)}))
    with open_store(instance, tmp_path) as opened:
        table.delete(keys=[[1]])
        assert opened.status().lag == 1
        opened.refresh()
        assert (dict(opened.all()), opened.status().lag) == ({2: {"name": "Bob", "n": 20}}, 0)
        compact_fully(instance._ports, "accounts")
        assert opened.refresh() == 0
        table.set_properties({"sleeper.table.filters": "ageOff(n,1)"})
        opened.refresh()
        assert dict(opened.all()) == {}
        table.ingest(rows({1: ("Ann", 2**50)}))
        opened.refresh()
        assert dict(opened.all()) == {1: {"name": "Ann", "n": 2**50}}
