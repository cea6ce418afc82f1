"""Deletion of a dropped table in steps, the index row last, despite crashes."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.garbage_collection.service import finish_table_deletion
from sleeper.local.folder import create_instance_folder
from sleeper.local.table_index import LocalTableIndex
from sleeper.tables import TableId, TableRef, mark_table_deleting, new_table_id
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
