"""What is reported as deleted stays deleted after a power failure, and markers are deleted first.

The tests record the order of system calls. A name that was deleted is *pending* until its folder
was synchronized: a power failure may bring it back.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.backup.restore import MARKER
from sleeper.errors import UnavailableError
from sleeper.garbage_collection.service import finish_deletions, snapshot_table
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.purging.report import ObjectState
from sleeper.purging.service import purge_table
from sleeper.stash.prune import prune_stashes
from sleeper.statestore import database
from sleeper.storage.disk import delete_durably
from sleeper.storage.location import UNFINISHED_SUFFIX, DataRoot
from tests.clock import DAY_MS, START_MS, FakeClock
from tests.disk_errors import FailingDisk
from tests.system.bad_days import run_all
from tests.unit.stash.test_prune import add_stash

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}


@dataclass
class Deletions:
    """The deletions of this process below a folder, in order, without temporary files.

    `before` has the names that were pending when a name was deleted, and `commits` those at each
    commit of a table's state.
    """

    top: Path
    pending: set[str] = field(default_factory=set)
    before: dict[str, set[str]] = field(default_factory=dict)
    commits: list[set[str]] = field(default_factory=list)
    synced_bytes: dict[str, int] = field(default_factory=dict)

    def delete(self, path: str | Path, folder: int | None = None) -> None:
        whole = Path(path) if folder is None else Path(_path_of(folder), path)
        if not whole.is_relative_to(self.top):
            return
        name = whole.relative_to(self.top).as_posix()
        is_temporary = name.endswith((UNFINISHED_SUFFIX, ".tmp", "lock")) or "/spill/" in name
        if not is_temporary:
            self.before[name] = set(self.pending)
            self.pending.add(name)

    def sync(self, descriptor: int) -> None:
        path, status = _path_of(descriptor), os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            self.synced_bytes[path.name] = status.st_size
        elif path.is_relative_to(self.top):
            below = (n for n in self.pending if (self.top / n).is_relative_to(path))
            # A folder that is deleted takes along what was in it.
            depth = len(path.parts)
            gone = {n for n in below if not Path(*(self.top / n).parts[: depth + 1]).exists()}
            self.pending -= gone

    def in_folder(self, folder: str) -> dict[str, set[str]]:
        """Returns what was pending before each deletion in a folder."""
        return {name: before for name, before in self.before.items() if name.startswith(folder)}


def _path_of(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


@pytest.fixture
def deletions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deletions:
    record = Deletions(tmp_path)
    fsync, execute = os.fsync, database._Connection.execute

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        record.sync(descriptor)

    def recorded_execute(self: Any, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "COMMIT":
            record.commits.append(set(record.pending))
        return execute(self, sql, parameters)

    for name in ("unlink", "rmdir", "remove"):
        original = getattr(os, name)

        def recorded(path: Any, *, dir_fd: int | None = None, original: Any = original) -> None:
            original(path, dir_fd=dir_fd)
            record.delete(path, dir_fd)

        monkeypatch.setattr(os, name, recorded)
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(database._Connection, "execute", recorded_execute)
    return record


@pytest.fixture
def instance(tmp_path: Path, deletions: Deletions) -> Iterator[sleeper.Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    with closing(open_local_instance(tmp_path / "instance")) as ports:
        made = sleeper.Instance(ports)
        table = made.create_table("rows", SCHEMA, {"sleeper.table.gc.delay.minutes": "0"})
        for number in range(2):
            table.ingest(pa.table({"k": [number, 10 + number], "v": ["a", "b"]}))
        assert deletions.pending == set()
        yield made


def test_purged_rows_are_gone_before_the_purge_says_so(
    instance: sleeper.Instance, deletions: Deletions
) -> None:
    ports = instance._ports
    snapshot_table(ports, ports.table("rows").ref, always=True)
    instance.table("rows").delete(keys=[[1]])
    report = purge_table(ports, "rows", wait=True)
    gone = {each.object for each in report.objects if each.state is ObjectState.GONE}
    files = {name.removeprefix("instance/") for name in deletions.before}
    assert {name for name in files if name.endswith(".parquet")} <= gone
    assert any("/data/" in name for name in files)
    assert any("/snapshots/" in name for name in files)
    assert deletions.pending == set()
    assert not any(name.endswith(".parquet") for each in deletions.commits for name in each)
    wals = {n: size for n, size in deletions.synced_bytes.items() if n.endswith("-wal")}
    assert wals == {"state.db-wal": 0, "instance.db-wal": 0}


def test_a_pruned_stash_loses_its_marker_first(
    instance: sleeper.Instance, deletions: Deletions, tmp_path: Path
) -> None:
    place = tmp_path / "stash"
    place.mkdir()
    old, _ = add_stash(place, 1), add_stash(place, 50)
    ports = replace(instance._ports, clock=FakeClock(START_MS + 100 * DAY_MS))
    (pruned,) = prune_stashes(ports, str(place), 7 * DAY_MS).pruned
    assert pruned.name == old
    order = list(deletions.in_folder("stash/"))
    marker, tables = f"stash/{old}/_SUCCESS", f"stash/{old}/_TABLES"
    assert order.index(marker) == 0
    assert order.index(tables) > max(map(order.index, (n for n in order if ".gz" in n)))
    assert all(marker not in before for before in deletions.in_folder("stash/").values())
    assert not any(".gz" in name for name in deletions.before[tables])
    assert deletions.pending == set()


def test_dropped_backups_lose_their_manifests_first(
    instance: sleeper.Instance, deletions: Deletions, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    instance.backup(place)
    instance.table("rows").compact(full=True)
    run_all(instance._ports)
    instance.backup(place, keep=1)
    objects = deletions.in_folder("place/objects/")
    assert objects
    for before in objects.values():
        assert not any(name.startswith("place/backups/") for name in before)
    assert len(deletions.in_folder("place/backups/")) == 1
    assert deletions.pending == set()


def test_a_restore_deletes_its_marker_durably(
    instance: sleeper.Instance, deletions: Deletions, tmp_path: Path
) -> None:
    instance.backup(tmp_path / "place")
    sleeper.restore_instance(tmp_path / "place", tmp_path / "restored")
    assert f"restored/{MARKER}" in deletions.before
    assert deletions.pending == set()


def test_a_deleted_table_stays_deleted(instance: sleeper.Instance, deletions: Deletions) -> None:
    table_id = instance._ports.table("rows").ref.id
    instance.delete_table("rows", now=True)
    finish_deletions(instance._ports)
    assert any(name.startswith(f"instance/{table_id}/data") for name in deletions.before)
    assert deletions.pending == set()


def test_a_deletion_that_is_repeated_is_durable(
    tmp_path: Path, failing_disk: FailingDisk, deletions: Deletions
) -> None:
    """The file was deleted by the call whose sync failed."""
    root = DataRoot(tmp_path / "root")
    root.put("folder/file", b"content")
    with failing_disk.failing(), pytest.raises(UnavailableError, match="cannot delete"):
        root.delete(["folder/file"])
    assert deletions.pending == {"root/folder/file"}
    root.delete(["folder/file"])
    assert deletions.pending == set()


def test_files_of_a_folder_that_is_missing_are_deleted(tmp_path: Path) -> None:
    delete_durably([tmp_path / "missing/file"])
