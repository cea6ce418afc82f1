"""Tests that an object and its name are durable before the entry that names it."""

import errno
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from sleeper.adapters.definition import Adapter, FilesSource, TableSink, TableSource
from sleeper.adapters.store import AdapterStore
from sleeper.admin.code import add_wheels
from sleeper.admin.properties import set_table_properties
from sleeper.bulk_export.service import export_table
from sleeper.cli.output import RowFormat, open_row_sink
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.errors import UnavailableError
from sleeper.garbage_collection.service import snapshot_table
from sleeper.ingest.row_writer import RowWriter
from sleeper.ingest.service import ingest_rows
from sleeper.ingest.small_rows import Content, ContentType
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query_service.service import send_query
from sleeper.stash.run import run_stash
from sleeper.statestore import database
from sleeper.storage.location import DataRoot
from tests.system.bad_days import make_table, run_all
from tests.wheels import make_wheel

# Enough rows for full row groups, so that the engine writes a compaction's output.
ENGINE_WRITTEN_ROWS = 30_000
ALL_KEYS = {"k": {"min": "", "max": None}}


@dataclass
class DiskRecord:
    """A record of a process's disk operations, in order.

    `file_sizes` has the size of each file at its last fsync, by inode; a rename keeps it.
    `folders` has the names that each folder held at its last fsync.
    """

    file_sizes: dict[int, int] = field(default_factory=dict)
    folders: dict[Path, set[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    checked: set[str] = field(default_factory=set)
    named: int = 0

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            # A name is durable only if its content was before.
            self.folders[path] = {
                p.name
                for p in path.iterdir()
                if p.is_dir() or (p.is_file() and self.find_fault(p) is None)
            }
        else:
            self.file_sizes[status.st_ino] = status.st_size

    def find_fault(self, path: Path) -> str | None:
        """Returns why a power failure could lose the file's content, or None if it is durable."""
        status = path.stat()
        synced = self.file_sizes.get(status.st_ino)
        if synced == status.st_size:
            return None
        return f"{path.name}: {synced} of {status.st_size} bytes at the last fsync"

    def check_named(self, path: Path) -> None:
        """Adds to the faults, unless the content is durable. The file gets its final name now."""
        self.named += 1
        fault = self.find_fault(path)
        if fault is not None:
            self.faults.append(fault)

    def check(self, path: Path, top: Path) -> None:
        """Adds to the faults, unless the file and the folders above it are durable."""
        self.checked.add(path.name)
        fault = self.find_fault(path)
        if fault is None and path.name not in self.folders.get(path.parent, ()):
            fault = f"{path.name}: its folder was not synchronized after it"
        for folder in path.parents:
            if folder == top:
                break
            if folder.name not in self.folders.get(folder.parent, ()):
                fault = fault or f"{path.name}: the name of folder {folder.name} is not durable"
        if fault is not None and fault not in self.faults:
            self.faults.append(fault)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DiskRecord:
    """The record of this process; data files and sidecars are checked at each commit."""
    record = DiskRecord()
    fsync, execute = os.fsync, database._Connection.execute
    rename, link = os.replace, os.link

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        record.fsync(descriptor)

    def is_of_instance(connection: Any) -> bool:
        _, _, file = execute(connection, "PRAGMA database_list").fetchone()
        return Path(file).is_relative_to(tmp_path)

    def recorded_execute(self: Any, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # An instance of another test may renew its floor while files of this one are written.
        if sql == "COMMIT" and is_of_instance(self):
            for path in (tmp_path / "instance").glob("*/data/*/*"):
                record.check(path, tmp_path)
        return execute(self, sql, parameters)

    def recorded_replace(source: str, target: str) -> None:
        record.check_named(Path(source))
        rename(source, target)

    def recorded_link(source: str, target: str) -> None:
        record.check_named(Path(source))
        link(source, target)

    monkeypatch.setattr(os, "replace", recorded_replace)
    monkeypatch.setattr(os, "link", recorded_link)
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(database._Connection, "execute", recorded_execute)
    return record


@pytest.fixture
def instance(disk: DiskRecord, tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened_instance = open_local_instance(tmp_path / "instance")
    make_table(opened_instance)
    yield opened_instance
    opened_instance.close()


def ingest(instance: Instance, rows: int) -> None:
    columns = {
        "k": [f"key-{i * 7919 % rows}" for i in range(rows)],
        "n": pa.array(range(rows), pa.int32()),
    }
    ingest_rows(instance, "rows", [pa.RecordBatch.from_pydict(columns)])


def suffixes(disk: DiskRecord) -> set[str]:
    return {"".join(Path(name).suffixes[-1:]) for name in disk.checked}


@pytest.mark.parametrize(
    ("rows", "output"), [(100, "streamed"), (ENGINE_WRITTEN_ROWS, "engine-written")]
)
def test_data_files_and_sidecars_are_durable_before_the_entry_that_names_them(
    instance: Instance, disk: DiskRecord, rows: int, output: str
) -> None:
    ingest(instance, rows)
    ingest(instance, rows)
    assert disk.faults == []
    previous = len(disk.checked)
    compact_table(instance, "rows", full=True)
    run_all(instance)
    assert disk.faults == []
    assert len(disk.checked) > previous
    assert suffixes(disk) == {".parquet", ".sketches", ".filter", ".checksum"}


def test_rows_of_a_writer_are_durable_before_they_are_acknowledged(
    instance: Instance, disk: DiskRecord, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as executor:
        writer = RowWriter(lambda: instance.table("rows"), executor)
        content = Content(ContentType.JSON_LINES, b'{"k": "key", "n": 1}')
        assert writer.submit(content, "once").result().rows == 1
    assert disk.faults == []
    assert suffixes(disk) == {".parquet", ".sketches", ".filter", ".checksum"}


def write_file(root: DataRoot, path: str) -> Path:
    with root.sink(path, syncs=False) as sink:
        sink.write(b"content")
    return Path(root.url_of(path))


def test_files_are_synchronized_at_once_and_then_their_folder(
    disk: DiskRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = DataRoot(tmp_path / "root")
    files = [write_file(root, f"folder/{name}") for name in "abcd"]
    assert [disk.find_fault(file) for file in files].count(None) == 0
    all_wait, fsync = Barrier(len(files)), os.fsync

    def waiting_fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            all_wait.wait(timeout=30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", waiting_fsync)
    root.sync([f"folder/{name}" for name in "abcd"])
    for file in files:
        disk.check(file, tmp_path)
    assert disk.faults == []


def test_a_disk_that_fails_for_one_of_several_files_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = DataRoot(tmp_path / "root")
    bad = write_file(root, "bad").stat().st_ino
    write_file(root, "good")
    fsync = os.fsync

    def failing_fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == bad:
            raise OSError(errno.EIO, "broken")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_fsync)
    for paths in (["bad", "good"], ["good", "bad"]):
        with pytest.raises(UnavailableError, match=r"cannot write .*: .*broken"):
            root.sync(paths)


def test_a_state_snapshot_is_durable_before_the_log_is_trimmed(
    instance: Instance, disk: DiskRecord, tmp_path: Path
) -> None:
    ingest(instance, 10)
    snapshot_table(instance, instance.tables.index.find("rows"), always=True)
    (snapshot,) = (tmp_path / "instance").glob("*/snapshots/*.db.zst")
    disk.check(snapshot, tmp_path)
    assert disk.faults == []


def test_exports_and_query_results_are_durable(
    instance: Instance, disk: DiskRecord, tmp_path: Path
) -> None:
    ingest(instance, 1_000)
    export_table(instance, "rows", tmp_path / "out", "e1")
    query = {"tableName": "rows", "type": "Query", "queryId": "q1", "regions": [ALL_KEYS]}
    send_query(instance, json.dumps(query))
    run_all(instance)
    export = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    results = list((tmp_path / "instance" / "query-results").rglob("*.parquet"))
    assert len(export) == 3
    assert len(results) == 1
    for path in [*export, *results]:
        disk.check(path, tmp_path)
    assert disk.faults == []


def test_a_file_of_rows_that_a_command_writes_is_durable(disk: DiskRecord, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with open_row_sink(RowFormat.CSV, file) as sink:
        sink.write(b"k,n\n" * 1000)
    disk.check(file, tmp_path)
    assert disk.faults == []


def test_property_files_and_wheels_are_durable(
    instance: Instance, disk: DiskRecord, tmp_path: Path
) -> None:
    add_wheels(instance, [make_wheel(tmp_path / "wheels")])
    set_table_properties(instance, "rows", {"sleeper.table.gc.delay.minutes": "7"})
    folder = tmp_path / "instance"
    files = [*folder.glob("code/*.whl"), *folder.rglob("*.properties")]
    assert len(files) == 3
    for path in files:
        disk.check(path, tmp_path)
    assert disk.faults == []


def test_definitions_and_due_times_of_adapters_are_durable(
    instance: Instance, disk: DiskRecord, tmp_path: Path
) -> None:
    store = AdapterStore(instance.storage.root)
    adapter = Adapter("orders", FilesSource(("rows.csv",)), TableSink("rows"))
    definition, due = (tmp_path / "instance/adapters" / f"orders.{end}" for end in ("json", "due"))
    disk.named = 0
    store.create(adapter)
    disk.check(definition, tmp_path)
    store.replace(replace(adapter, source=TableSource("other")))
    disk.check(definition, tmp_path)
    store.record_due("orders", 1)
    store.record_due("orders", 20)
    disk.check(due, tmp_path)
    assert disk.faults == []
    assert disk.named == 4
    assert {path.name for path in definition.parent.iterdir()} == {definition.name, due.name}


def test_a_stash_is_durable_before_the_file_that_completes_it(
    instance: Instance, disk: DiskRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(instance, 10)
    root = tmp_path / "stash"
    recorded: list[str] = []
    replacing = DataRoot.replacing

    @contextmanager
    def checked_replacing(place: DataRoot, path: str) -> Iterator[Any]:
        if path.endswith("_SUCCESS") or path == "_LATEST":
            recorded.append(Path(path).name)
            for each in root.rglob("*"):
                if each.is_file():
                    disk.check(each, tmp_path)
        with replacing(place, path) as sink:
            yield sink

    monkeypatch.setattr(DataRoot, "replacing", checked_replacing)
    run_stash(instance, str(root))
    disk.check(root / "_LATEST", tmp_path)
    assert disk.faults == []
    assert recorded == ["_SUCCESS", "_LATEST"]
    assert {"_TABLES", "_SUCCESS", "_LATEST"} < disk.checked


def test_rejected_rows_are_durable(disk: DiskRecord, tmp_path: Path) -> None:
    file = tmp_path / "rejected.jsonl"
    with file.open("a", encoding="utf-8") as sink:
        rejects = Rejects(sink)
        rejects.begin()
        rejects.add("rows.csv", 1, "no number", "x")
        rejects.keep()
        disk.check(file, tmp_path)
    assert disk.faults == []
