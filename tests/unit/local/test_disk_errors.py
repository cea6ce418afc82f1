"""Each writer fails if the disk reports an error at any of its syncs, which Linux does once."""

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct.definition import EngineType
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.clock import system_clock
from sleeper.datafiles.write import engine_file, merged
from sleeper.errors import UnavailableError
from sleeper.garbage_collection.service import snapshot_table
from sleeper.ingest.row_writer import RowWriter
from sleeper.ingest.small_rows import Content, ContentType
from sleeper.stash.run import run_stash
from sleeper.storage.disk import make_folder
from tests.clock import FakeClock
from tests.disk_errors import FailingDisk, fail_each_sync
from tests.tables.data_table import DataTable
from tests.unit.adjunct.test_store import Stores, writes

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
# Enough for the engine to write the file.
MANY = 30_000


@dataclass(frozen=True)
class Writers:
    """The writers of an instance. Each can be repeated."""

    instance: sleeper.Instance
    folder: Path
    numbers: Iterator[int]

    @property
    def table(self) -> sleeper.Table:
        return self.instance.table("rows")

    def ingest(self) -> None:
        self.table.ingest(pa.table({"k": [next(self.numbers)], "v": ["value"]}))

    def ingest_many(self) -> None:
        self.table.ingest(pa.table({"k": range(MANY), "v": ["value"] * MANY}))

    def write_rows(self) -> None:
        with ThreadPoolExecutor(1) as executor:
            writer = RowWriter(lambda: self.instance._ports.table("rows"), executor)
            content = Content(ContentType.JSON_LINES, b'{"k": 1, "v": "value"}')
            writer.submit(content, f"once-{next(self.numbers)}").result()

    def delete_keys(self) -> None:
        self.table.delete(keys=[[key] for key in range(2_000)])

    def set_property(self) -> None:
        self.table.set_properties({"sleeper.table.gc.delay.minutes": str(next(self.numbers))})

    def version(self) -> int:
        with self.instance._ports.table("rows").state.reading() as state:
            return int(state.number)

    def named(self) -> list[Path]:
        with self.instance._ports.table("rows").state.reading() as state:
            files = [(f.path, f.sidecars) for f in state.files.all()]
        return [self.folder / (path + end) for path, ends in files for end in ("", *ends)]


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    with sleeper.create_instance(tmp_path / "instance", {"sleeper.engine.threads": "1"}) as made:
        made.create_table("rows", SCHEMA).ingest(pa.table({"k": [1], "v": ["first"]}))
        yield Writers(made, tmp_path / "instance", count(10))


DATA_FILE = {".parquet", ".filter", ".sketches", ".checksum", "folder"}


@pytest.mark.parametrize(
    "write", [Writers.ingest, Writers.ingest_many, Writers.write_rows, Writers.delete_keys]
)
def test_nothing_is_committed_after_an_error_of_the_disk(
    writers: Writers, failing_disk: FailingDisk, write: Callable[[Writers], None]
) -> None:
    fail_each_sync(failing_disk, lambda: write(writers), writers.version, writers.named)
    is_key_file = write == Writers.delete_keys
    assert failing_disk.kinds == (DATA_FILE - {".filter"} if is_key_file else DATA_FILE)


def test_a_snapshot_is_not_trusted_after_an_error_of_the_disk(
    writers: Writers, failing_disk: FailingDisk
) -> None:
    def snapshots() -> list[Path]:
        return sorted(writers.folder.glob("*/snapshots/*.db.zst"))

    def save() -> None:
        ports = writers.instance._ports
        snapshot_table(ports, ports.table("rows").ref, always=True)

    fail_each_sync(failing_disk, save, snapshots, snapshots)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[DataTable]:
    opened = DataTable(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("rows", [100, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_compaction_is_committed_after_an_error_of_the_disk(
    table: DataTable, failing_disk: FailingDisk, rows: int
) -> None:
    for _ in range(2):
        table.ingest(range(rows))
    table.create_jobs(full=True)
    (job,) = table.sent_jobs()

    def files() -> list[str]:
        return sorted(file.path for file in table.files())

    def named() -> list[Path]:
        return [Path(table.root.url_of(path)) for path in files()]

    fail_each_sync(failing_disk, lambda: table.run(job), files, named)
    assert failing_disk.kinds == DATA_FILE


def test_an_error_of_an_early_sync_fails_the_compaction(
    table: DataTable, failing_disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux reports the error once, so the sync of the whole file succeeds."""
    failed = Event()
    monkeypatch.setattr(engine_file, "_SYNC_BYTES", 1)
    monkeypatch.setattr(engine_file, "_SYNC_CHECK_SECONDS", 0.001)
    fdatasync, write = os.fdatasync, merged._write_frame

    def failing(descriptor: int) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fdatasync(descriptor)

    def write_slowly(rows: Any, schema: Any, path: Path, options: Any) -> None:
        unfinished = path.with_name(f"{path.name}#1")
        unfinished.write_bytes(b"a part")
        assert failed.wait(30)
        unfinished.unlink()
        write(rows, schema, path, options)

    monkeypatch.setattr(os, "fdatasync", failing)
    monkeypatch.setattr(merged, "_write_frame", write_slowly)
    for _ in range(2):
        table.ingest(range(MANY))
    before = {file.path for file in table.files()}
    (result,) = table.compact(full=True)
    assert isinstance(result, UnavailableError)
    assert "input/output error" in str(result)
    assert {file.path for file in table.files()} == before


def test_a_property_is_not_set_after_an_error_of_the_disk(
    writers: Writers, failing_disk: FailingDisk
) -> None:
    def properties() -> list[Path]:
        return list(writers.folder.glob("tables/*.properties"))

    def value() -> str:
        return properties()[0].read_text()

    fail_each_sync(failing_disk, writers.set_property, value, properties, renames=True)


@pytest.mark.slow
def test_a_stash_is_not_complete_after_an_error_of_the_disk(
    writers: Writers, failing_disk: FailingDisk, tmp_path: Path
) -> None:
    place = tmp_path / "stash"
    clock = FakeClock(system_clock())

    def stash() -> None:
        clock.pass_seconds(1)
        run_stash(replace(writers.instance._ports, clock=clock), str(place))

    def latest() -> list[str]:
        return [path.read_text() for path in place.glob("_LATEST")]

    def named() -> list[Path]:
        folders = [done.parent for done in place.glob("*/_SUCCESS")]
        return [p for folder in folders for p in folder.rglob("*") if p.is_file()]

    def durable() -> list[Path]:
        # A stash that failed at the name of its `_SUCCESS` is a root of its own.
        (root,) = latest()
        return [place / "_LATEST", *(p for p in (place / root).rglob("*") if p.is_file())]

    fail_each_sync(failing_disk, stash, latest, named, renames=True, durable=durable)
    assert failing_disk.kinds >= {"folder", ".unfinished"}


def test_a_backup_does_not_exist_after_an_error_of_the_disk(
    writers: Writers, failing_disk: FailingDisk, tmp_path: Path
) -> None:
    place = tmp_path / "place"

    def manifests() -> list[Path]:
        return sorted(place.glob("backups/*.json"))

    def named() -> list[Path]:
        return [p for p in place.rglob("*") if p.is_file() and p.suffix != ".unfinished"]

    def back_up() -> None:
        writers.instance.backup(place)

    fail_each_sync(failing_disk, back_up, manifests, named, renames=True)


def test_a_version_of_a_store_does_not_serve_after_an_error_of_the_disk(
    tmp_path: Path, failing_disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A former version that cannot be deleted is no failure of the new one.
    monkeypatch.setattr(StoreFolder, "delete_others", lambda _self, _kept: None)
    stores = Stores(tmp_path, EngineType.ROCKSDB)
    store = stores.open()
    numbers = count(1)

    def current() -> list[Path]:
        return [p for p in (tmp_path / "accounts/current",) if p.exists()]

    def version() -> str:
        return "".join(path.read_text() for path in current())

    def build() -> None:
        number = next(numbers)
        store.build([writes({number: "a"})], lambda: stores.state(str(number)))

    fail_each_sync(failing_disk, build, version, current, renames=True)
    store.close()


def test_a_folder_whose_name_is_not_durable_is_synchronized_by_the_next_call(
    tmp_path: Path, failing_disk: FailingDisk
) -> None:
    folder = tmp_path / "a/b"
    for _ in range(2):
        with failing_disk.failing(), pytest.raises(UnavailableError):
            make_folder(folder)
        assert folder.is_dir()
    make_folder(folder)
    with failing_disk.failing():
        make_folder(folder)
    assert failing_disk.failure is None


def test_a_restore_makes_names_durable_that_an_interrupted_one_left(
    writers: Writers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers.instance.backup(tmp_path / "place")
    folder = tmp_path / "restored"
    synced: list[Path] = []
    failed: list[Path] = []
    fsync = os.fsync

    def files() -> list[Path]:
        return list(folder.glob("*/data/*/*.parquet"))

    def failing(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not failed and path in {file.parent for file in files()}:
            failed.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)
        synced.append(path)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(UnavailableError):
        sleeper.restore_instance(tmp_path / "place", folder)
    (file,) = files()
    synced.clear()
    sleeper.restore_instance(tmp_path / "place", folder)
    assert files() == [file]
    assert failed == [file.parent]
    assert file.parent in synced
