"""The sweep of tables without an index entry, which must not delete data."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.errors import SleeperError, UnavailableError
from sleeper.garbage_collection.service import sweep_abandoned
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import schema_from_json
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.tables import TableId, TableState

SCHEMA = '{"rowKeyFields":[{"name":"k","type":"StringType"}]}'
_HOUR_MS = 3_600_000
ROWS = pa.record_batch({"k": ["a", "b"]})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "here", "me")
    with closing(open_local_instance(tmp_path / "here")) as opened_instance:
        yield opened_instance


def lose_row(instance: Instance, table_id: TableId) -> None:
    with closing(sqlite3.connect(Path(instance.where) / "instance.db")) as connection:
        connection.execute("DELETE FROM tables WHERE id = ?", (table_id,))
        connection.commit()


def sweep(instance: Instance, hours: int = 2) -> int:
    """Sweeps with a clock that is so far ahead."""
    return sweep_abandoned(replace(instance, clock=lambda: system_clock() + hours * _HOUR_MS))


def test_table_with_data_but_no_index_entry_is_kept(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as after restoring a backup of the index from before the table's creation."""
    ref = create_table(instance, "t", SCHEMA)
    ingest_rows(instance, "t", [ROWS])
    lose_row(instance, ref.id)
    with caplog.at_level(logging.WARNING):
        assert sweep(instance) == 0
    assert f"table {ref.id} is not in the index and has data: it is kept" in caplog.text
    instance.tables.index.create(ref)
    with instance.table("t").state.reading() as state:
        (file,) = state.files.all()
    assert (Path(instance.where) / file.path).exists()


def test_table_with_commits_but_no_rows_is_kept(instance: Instance) -> None:
    """The log has more entries than a creation writes."""
    ref = create_table(instance, "t", SCHEMA)
    ingest_rows(instance, "t", [ROWS.slice(0, 0)])
    lose_row(instance, ref.id)
    assert sweep(instance) == 0


def test_table_with_unreadable_state_is_kept(instance: Instance) -> None:
    dead = TableId("0badf00d")
    instance.tables.create(dead)
    (Path(instance.where) / dead / "state.db").write_bytes(b"no database" * 1000)
    assert sweep(instance) == 0
    assert (Path(instance.where) / dead / "state.db").exists()


@pytest.mark.parametrize("is_initialised", [True, False])
def test_interrupted_creation_is_removed(instance: Instance, is_initialised: bool) -> None:
    dead = TableId("0badf00d")
    instance.tables.create(dead)
    if is_initialised:
        tree = tuple(tree_from_split_points(schema_from_json(SCHEMA), ()))
        instance.tables.state(dead).commit_or_raise(InitialiseTable(SCHEMA, tree))
    assert sweep(instance) == 1
    assert not (Path(instance.where) / dead).exists()


@pytest.mark.parametrize("step", ["commit", "properties", "index"])
def test_a_creation_that_was_paused_fails_after_the_sweep(instance: Instance, step: str) -> None:
    tables = instance.tables

    def sweep_before(action: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            assert sweep(instance) == 1
            return action(*arguments)

        return act

    class Paused:
        """Passes on to a port, one method of which first waits for a sweep."""

        def __init__(self, port: object, method: str) -> None:
            self._port, self._waiting = port, method

        def __getattr__(self, name: str) -> Any:
            value = getattr(self._port, name)
            return sweep_before(value) if name == self._waiting else value

    def state(table_id: TableId) -> Any:
        return Paused(tables.state(table_id), "commit_or_raise")

    paused: dict[str, Any] = {
        "commit": {"state": state},
        "properties": {"properties": Paused(tables.properties, "write")},
        "index": {"index": Paused(tables.index, "create")},
    }
    slow = replace(instance, tables=replace(tables, **paused[step]))
    with pytest.raises(SleeperError):
        create_table(slow, "t", SCHEMA)
    assert tables.index.list() == ()
    create_table(instance, "t", SCHEMA)
    ingest_rows(instance, "t", [ROWS])


def test_what_a_paused_creation_wrote_is_removed_while_its_id_is_claimed(
    instance: Instance,
) -> None:
    dead = TableId("0badf00d")
    instance.tables.create(dead)
    assert sweep(instance) == 1
    instance.tables.create(dead)
    assert sweep(instance, hours=24) == 0
    assert not (Path(instance.where) / dead).exists()
    assert [ref.id for ref in instance.tables.index.list(TableState.ABANDONED)] == [dead]
    assert sweep(instance, hours=31 * 24) == 0
    assert all(not instance.tables.index.list(state) for state in TableState)


def test_a_sweep_that_died_after_its_claim_is_finished_by_the_next_one(instance: Instance) -> None:
    dead = TableId("0badf00d")
    instance.tables.create(dead)

    def fail(_: TableId) -> None:
        raise UnavailableError("the disk is away")

    failing = replace(instance, tables=replace(instance.tables, delete=fail))
    with pytest.raises(UnavailableError):
        sweep(failing)
    assert (Path(instance.where) / dead).exists()
    sweep(instance)
    assert not (Path(instance.where) / dead).exists()
