"""What only the local storage of export queues does; the contract suite has the rest."""

from pathlib import Path

import pytest

from sleeper.errors import NotFoundError
from sleeper.jobs.export_store import NewItem, TakenUp
from sleeper.local.export_store import LocalExportStore


def test_an_instance_without_queues_has_no_file(tmp_path: Path) -> None:
    store = LocalExportStore(tmp_path / "export-queues.db")
    assert store.list() == []
    assert store.vacuum()
    with pytest.raises(NotFoundError):
        store.counts("q")
    store.remove("q")
    assert not list(tmp_path.iterdir())


def test_deleted_exports_leave_no_remains(tmp_path: Path) -> None:
    store = LocalExportStore(tmp_path / "export-queues.db")
    store.register("q", "t")
    store.begin("q", 3, TakenUp(3))
    store.add("q", 3, [NewItem(0, "1", 1, b"secret of a customer" * 1000)], TakenUp(4))
    store.remove("q")
    assert store.vacuum()
    assert all(b"secret of" not in path.read_bytes() for path in tmp_path.iterdir())
