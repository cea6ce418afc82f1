"""What only the local storage of export queues does; the contract suite has the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from sleeper.errors import NotFoundError
from sleeper.export_queue.local.store import LocalExportStore
from sleeper.export_queue.store import NewItem, Position


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
    store.begin("q", 3, Position(3))
    store.add("q", 3, [NewItem(0, "1", 1, b"secret of a customer" * 1000)], Position(4))
    store.remove("q")
    assert store.vacuum()
    assert all(b"secret of" not in path.read_bytes() for path in tmp_path.iterdir())


CLAIM = """
import sys
from pathlib import Path
from sleeper.export_queue.local.store import LocalExportStore

assert LocalExportStore(Path(sys.argv[1])).claim("q", 0, "dead", 3600)
"""


def test_the_claim_of_a_dead_process_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "export-queues.db"
    store = LocalExportStore(path)
    store.register("q", "t")
    store.begin("q", 3, Position(3))
    store.add("q", 3, [NewItem(0, "1", 1, b"rows")], Position(4))
    subprocess.run([sys.executable, "-c", CLAIM, str(path)], check=True)
    assert [status.claimed_until_ms for status in store.buckets("q")] == [0]
    assert store.claim("q", 0, "here", 3600)
    assert not store.claim("q", 0, "other", 3600)
    assert [status.deaths for status in store.buckets("q")] == [1]
