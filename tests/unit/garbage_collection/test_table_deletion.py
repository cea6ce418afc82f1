"""Deletion of a dropped table in steps, the index row last, despite crashes."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sleeper.admin.clone import clone_table
from sleeper.admin.tables import delete_table, undelete_table
from sleeper.clock import system_clock
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.garbage_collection.service import finish_deletions, finish_table_deletion
from sleeper.ingest.service import ingest_paths
from sleeper.instance import Instance
from sleeper.local.folder import create_instance_folder
from sleeper.local.holds import HOLDS_FILE, LocalHolds
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.local.table_index import LocalTableIndex
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold
from sleeper.tables import (
    TableId,
    TableRef,
    TableState,
    end_retention,
    mark_table_deleting,
    new_table_id,
)
from tests.clock import FakeClock
from tests.ports import with_ports
from tests.system.bad_days import make_table, write
from tests.tables.watched_ports import Killed


def test_an_interrupted_table_deletion_is_finished_by_the_next(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path / "i", "x")
    index = LocalTableIndex(instance.database)
    for dies_after in range(4):
        table = TableRef(new_table_id(), "t")
        index.create(table)
        deleting = mark_table_deleting(index, "t")
        remaining = {"objects", "state", "properties"}
        deleted_parts: list[str] = []

        def piece(
            name: str,
            remaining: set[str] = remaining,
            deleted_parts: list[str] = deleted_parts,
            stop: int = dies_after,
        ):
            def remove(table_id: TableId) -> None:
                if len(deleted_parts) == stop:
                    raise Killed
                remaining.discard(name)
                deleted_parts.append(name)

            return remove

        pieces = [piece("objects"), piece("state"), piece("properties")]
        if dies_after < 3:
            with pytest.raises(Killed):
                finish_table_deletion(deleting, index, *pieces)
            assert index.get(table.id) == deleting
            deleted_parts.append("the next begins")
        finish_table_deletion(deleting, index, *pieces)
        assert remaining == set()
        with pytest.raises(NotFoundError):
            index.get(table.id)
    instance.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as instance:
        make_table(instance)
        ingest_paths(instance, "rows", [str(write(tmp_path / "rows.parquet", [("a", 1)]))])
        yield instance


def count_rows(instance: Instance, name: str = "rows") -> int:
    return open_query(instance, name, Query()).read_all().num_rows


def test_deleted_table_can_be_brought_back_until_its_time_has_passed(
    instance: Instance, clock: FakeClock
) -> None:
    for name in ("rows", instance.table("rows").ref.id):
        delete_table(instance, "rows")
        with pytest.raises(NotFoundError):
            instance.table("rows")
        clock.now_ms += 23 * 3_600_000
        assert finish_deletions(instance) == 0
        undelete_table(instance, name)
        assert count_rows(instance) == 1
    delete_table(instance, "rows")
    clock.now_ms += 24 * 3_600_000
    assert finish_deletions(instance) == 1
    with pytest.raises(NotFoundError, match="no deleted table 'rows'"):
        undelete_table(instance, "rows")


def test_name_of_a_deleted_table_is_free_and_taken_names_are_refused(instance: Instance) -> None:
    first = instance.table("rows").ref.id
    delete_table(instance, "rows")
    make_table(instance)
    with pytest.raises(ConflictError, match="'rows' already exists"):
        undelete_table(instance, "rows")
    delete_table(instance, "rows")
    with pytest.raises(InvalidRequestError, match="expected an id"):
        undelete_table(instance, "rows")
    undelete_table(instance, first)
    assert count_rows(instance) == 1


def test_clone_keeps_its_files_while_it_is_deleted_and_is_brought_back(instance: Instance) -> None:
    clone_table(instance, "rows", "copy")
    delete_table(instance, "copy")
    delete_table(instance, "rows", now=True)
    assert finish_deletions(instance) == 0
    undelete_table(instance, "copy")
    assert count_rows(instance, "copy") == 1


def test_deletion_at_once_cannot_be_undone(instance: Instance) -> None:
    delete_table(instance, "rows")
    delete_table(instance, "rows", now=True)
    with pytest.raises(NotFoundError):
        undelete_table(instance, "rows")
    assert finish_deletions(instance) == 1


def test_table_that_is_brought_back_while_its_deletion_begins_stays(
    instance: Instance, clock: FakeClock
) -> None:
    delete_table(instance, "rows")
    clock.now_ms += 24 * 3_600_000
    index = instance.tables.index
    (listed,) = index.list(TableState.DELETING)

    class Overtaken:
        def list(self, state: TableState) -> tuple[TableRef, ...]:
            if index.list(state):
                undelete_table(instance, "rows")
            return (listed,)

        def __getattr__(self, name: str) -> Any:
            return getattr(index, name)

    assert finish_deletions(with_ports(instance, tables={"index": Overtaken()})) == 0
    assert count_rows(instance) == 1
    delete_table(instance, "rows")
    (listed,) = index.list(TableState.DELETING)
    end_retention(index, listed)
    with pytest.raises(ConflictError, match="was changed"):
        index.replace(listed, replace(listed, state=TableState.ACTIVE, deleted_ms=None))


def test_a_table_in_use_is_not_deleted(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path / "i", "x")
    index = LocalTableIndex(instance.database)
    table = TableRef(new_table_id(), "t")
    index.create(table)
    removed: list[TableId] = []
    with pytest.raises(InvalidRequestError, match="'t' is in use"):
        finish_table_deletion(table, index, removed.append)
    assert removed == []
    assert index.find("t") == table
    instance.close()


def test_a_deleted_table_leaves_no_holds(instance: Instance, clock: FakeClock) -> None:
    table = instance.table("rows")
    table.state.holds.take(Hold("h", "a reader", 1, clock() + 60_000))
    delete_table(instance, "rows", now=True)
    finish_deletions(instance)
    holds = Database(Path(instance.where) / HOLDS_FILE)
    with closing(holds):
        assert LocalHolds(holds, table.ref.id).all() == []
