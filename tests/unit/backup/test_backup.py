"""Backups and restores of a local instance."""

import json
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adapters.definition import Adapter, TableSink, TableSource
from sleeper.adapters.store import AdapterStore
from sleeper.admin.code import add_wheels
from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import delete_table, rename, set_online
from sleeper.api import Instance
from sleeper.backup.place import open_place_to_read
from sleeper.clock import system_clock
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import keys_schema
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.key_file import write_key_file
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)
from sleeper.files import new_key_path
from sleeper.garbage_collection.service import collect_table, finish_deletions
from sleeper.instance import Instance as Ports
from sleeper.opening import open_instance as open_ports
from sleeper.runs.lock import lock_root
from sleeper.statestore.state_file import StateFile
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.storage.location import DataRoot
from tests.tables.opened import compact_fully
from tests.unit.backup.conftest import SCHEMA, Kill, Killed, list_keys, rows_of
from tests.wheels import make_wheel


def objects(place: Path, kind: str = "*.parquet") -> set[str]:
    return {p.relative_to(place).as_posix() for p in (place / "objects").rglob(kind)}


def restored(place: Path, target: Path, **options: Any) -> dict[str, list[int]]:
    """Restores a backup, checks it, and returns the keys of each table."""
    result = sleeper.restore_instance(place, target, **options)
    assert all(not table.faults for table in result.tables)
    with sleeper.open_instance(target) as instance:
        return {name: list_keys(instance.table(name)) for name in instance.tables()}


def shape(instance: Instance) -> None:
    """Rewrites the files of table `a` and deletes the old ones."""
    ports: Ports = instance._ports
    compact_fully(ports, "a")
    collect_table(ports, "a")


def test_a_restored_instance_has_the_rows_and_the_history(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    a = instance.table("a")
    before = list_keys(a)
    result = instance.backup(place)
    numbers = {table.name: table.number for table in result.tables}
    a.ingest(rows_of(99))
    a.delete(ranges=[(None, None)])
    assert restored(place, tmp_path / "new") == {"a": before, "b": [7, 8]}
    with sleeper.open_instance(tmp_path / "new") as new:
        table = new.table("a")
        assert table.history(1)[0].number >= numbers["a"]
        # Jobs of the backup are known, and numbers continue.
        assert table.ingest(rows_of(1, 2, 3, 11, 12), job_id="first").done_before
        assert (table.ingest(rows_of(5), job_id="third").number or 0) > numbers["a"]
        table.delete(keys=[[1]])
        assert list_keys(table) == sorted({*before, 5} - {1})
        shape(new)
        assert list_keys(table) == sorted({*before, 5} - {1})
        assert list_keys(table, table.version) == list_keys(table)
        with pytest.raises(InvalidRequestError, match="no longer readable"):
            table.query(as_of=numbers["a"] - 1)


def test_a_repeated_backup_copies_only_new_files(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    first = instance.backup(place)
    assert [t.copied_objects for t in first.tables] == [2 * 4, 4]
    again = instance.backup(place)
    assert [(t.copied_objects, t.copied_bytes) for t in again.tables] == [(0, 0), (0, 0)]
    instance.table("b").ingest(rows_of(9))
    third = instance.backup(place)
    assert [(t.name, t.copied_objects) for t in third.tables] == [("a", 0), ("b", 4)]
    assert third.tables[1].files == 2
    assert restored(place, tmp_path / "new")["b"] == [7, 8, 9]
    assert restored(place, tmp_path / "old", at=first.id[:18])["b"] == [7, 8]


def test_keep_deletes_old_backups_and_their_objects(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    before = list_keys(instance.table("a"))
    instance.backup(place)
    old = objects(place)
    shape(instance)
    second = instance.backup(place, keep=2)
    assert (second.dropped, old <= objects(place)) == (0, True)
    third = instance.backup(place, keep=1)
    assert third.dropped == 2
    assert open_place_to_read(str(place)).ids() == [third.id]
    with instance._ports.tables.state(instance._ports.tables.index.find("a").id).reading() as state:
        paths = {f"objects/{file.path}" for file in state.files.all()}
    assert {p for p in objects(place) if not p.startswith(_prefix(instance, "b"))} == paths
    assert len(objects(place, "*.zst")) == 4
    assert restored(place, tmp_path / "new")["a"] == before
    with pytest.raises(InvalidRequestError, match="0 backups to keep"):
        instance.backup(place, keep=0)


def _prefix(instance: Instance, name: str) -> str:
    return f"objects/{instance._ports.tables.index.find(name).id}/"


def test_tables_are_chosen_by_name(instance: Instance, place: Path, tmp_path: Path) -> None:
    instance.backup(place, tables=["b"])
    assert restored(place, tmp_path / "only") == {"b": [7, 8]}
    instance.backup(place)
    assert restored(place, tmp_path / "new", tables=["b"]) == {"b": [7, 8]}
    # A second restore adds the other table.
    assert set(restored(place, tmp_path / "new", tables=["a"])) == {"a", "b"}
    with pytest.raises(NotFoundError, match="no table is named 'c'"):
        instance.backup(place, tables=["c"])
    with pytest.raises(NotFoundError, match=r"has no table 'c' \(its tables: a, b\)"):
        sleeper.restore_instance(place, tmp_path / "other", tables=["c"])


def test_properties_and_state_of_tables_are_restored(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    ports = instance._ports
    ports.change_properties({"sleeper.default.table.gc.delay.minutes": "7"})
    rename(ports, "b", "c")
    set_online(ports, "c", False)
    instance.create_table("empty", SCHEMA, {"sleeper.table.filters": "ageoff(k,10)"})
    instance.backup(place)
    keys = restored(place, tmp_path / "new")
    assert (keys["c"], keys["empty"]) == ([7, 8], [])
    new = open_ports(tmp_path / "new")
    try:
        assert new.properties().values == ports.properties().values
        for name in ("a", "c", "empty"):
            ref = ports.tables.index.find(name)
            assert new.tables.index.find(name) == ref
            properties = ports.tables.properties.read(ref.id)
            assert new.tables.properties.read(ref.id).values == properties.values
    finally:
        new.close()


def test_wheels_and_key_files_are_restored(instance: Instance, place: Path, tmp_path: Path) -> None:
    ports, table = instance._ports, instance.table("a")
    wheel = make_wheel(tmp_path, iterators={"Whole": "my_code:Whole"})
    add_wheels(ports, [wheel])
    change_table_properties(ports, "a", {"sleeper.table.iterator.class.name": "Whole"})
    delete_by_key_file(ports, tmp_path, [1, 13])
    before = list_keys(table)
    assert 13 not in before
    result = instance.backup(place)
    assert result.tables[0].copied_objects == 2 * 4 + 3
    assert restored(place, tmp_path / "new")["a"] == before
    new = open_ports(tmp_path / "new")
    try:
        assert new.code.registry.get("my_code").bytes == wheel.stat().st_size
    finally:
        new.close()
    assert instance.backup(place).tables[0].copied_objects == 0


def delete_by_key_file(ports: Ports, folder: Path, keys: list[int]) -> None:
    ref = ports.tables.index.find("a")
    store = ports.tables.state(ref.id)
    with store.reading() as state:
        schema = keys_schema(state.schema)
    rows = RowSort(schema, folder, EngineSettings(folder))
    rows.add_batches([pa.record_batch([pa.array(keys, pa.int64())], schema=arrow_schema(schema))])
    path = new_key_path(ref.id, system_clock())
    root = ports.storage.root
    file = write_key_file(root, path, rows, FileSettings())
    store.commit_or_raise(DeleteRows((), file, system_clock(), "keys", id="by-file"))


def test_adapters_are_restored_unless_tables_are_chosen(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    store = AdapterStore(instance._ports.storage.root)
    adapter = Adapter("copy", TableSource("a"), TableSink("b"))
    store.create(adapter)
    instance.backup(place)
    restored(place, tmp_path / "whole")
    restored(place, tmp_path / "some", tables=["a"])
    with (
        sleeper.open_instance(tmp_path / "whole") as whole,
        sleeper.open_instance(tmp_path / "some") as some,
    ):
        assert AdapterStore(whole._ports.storage.root).list() == (adapter,)
        assert AdapterStore(some._ports.storage.root).list() == ()


def test_export_queues_are_restored_paused_at_the_version(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    queue = instance.create_export_queue("out", "a", on="ingest", keys="k", values="v")
    instance.table("a").ingest(rows_of(50))
    backup = instance.backup(place)
    assert queue.drain().exports == 1
    restored(place, tmp_path / "new")
    with sleeper.open_instance(tmp_path / "new") as new:
        table, copy = new.table("a"), new.export_queue("out")
        before = copy.status()
        assert (before.state.value, before.pending, before.exporter) == ("paused", 0, "null:")
        assert before.lag == table.version - backup.tables[0].number
        table.ingest(rows_of(60, 61))
        assert copy.drain().exports == 0
        assert copy.status().pending == 2
        copy.resume()
        assert copy.drain().exports == 2


def test_a_restored_queue_of_a_snapshot_table_holds_the_restored_version(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    table = instance.create_table("versions", SCHEMA, {"sleeper.table.type": "snapshot"})
    table.ingest(rows_of(1))
    instance.create_export_queue("out", "versions", on="snapshot", keys="k", exporter="null:")
    instance.backup(place)
    restored(place, tmp_path / "new")
    with sleeper.open_instance(tmp_path / "new") as new:
        new.table("versions").ingest(rows_of(2))
        assert new.table("versions").expire_snapshots() == []
        new.export_queue("out").resume()
        assert new.export_queue("out").drain().exports == 2


def test_a_queue_of_the_same_name_prevents_a_restore(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    instance.create_export_queue("out", "a", on="ingest", keys="k", values="v")
    instance.backup(place)
    with sleeper.create_instance(tmp_path / "new") as new:
        new.create_table("other", SCHEMA)
        other = new.create_export_queue("out", "other", on="ingest", keys="k")
        with pytest.raises(ConflictError, match="'out' already exists, of another table"):
            sleeper.restore_instance(place, tmp_path / "new")
        other.delete(discard=True)
    assert "a" in restored(place, tmp_path / "new")


def test_an_adapter_that_is_deleted_during_a_backup_is_left_out(
    instance: Instance, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AdapterStore(instance._ports.storage.root)
    for name in ("deleted", "kept"):
        store.create(Adapter(name, TableSource("a"), TableSink("b")))
    read = DataRoot.read

    def delete_first(root: DataRoot, path: str) -> bytes:
        if path == "adapters/deleted.json":
            root.delete([path])
        return read(root, path)

    with monkeypatch.context() as patch:
        patch.setattr(DataRoot, "read", delete_first)
        instance.backup(place)
    restored(place, tmp_path / "new")
    with sleeper.open_instance(tmp_path / "new") as whole:
        assert AdapterStore(whole._ports.storage.root).names() == ("kept",)


def test_a_table_with_files_of_another_is_restored_alone(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    """A clone reads the files of its source, which may not be in the backup."""
    source = instance._ports.tables.index.find("a")
    instance.clone_table("a", "clone")
    expected = list_keys(instance.table("a"))
    assert list_keys(instance.table("clone")) == expected
    instance.backup(place, tables=["clone"])
    assert restored(place, tmp_path / "new") == {"clone": expected}
    assert not (tmp_path / "new" / source.id).exists()
    instance.backup(place)
    assert restored(place, tmp_path / "all")["clone"] == expected


def test_a_place_holds_backups_of_one_instance_and_nothing_else(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequestError, match="inside the instance's folder"):
        instance.backup(tmp_path / "instance" / "backups")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="is a file"):
        instance.backup(tmp_path / "file")
    own = tmp_path / "own"
    (own / "objects").mkdir(parents=True)
    (own / "objects" / "photo.jpg").write_text("mine")
    with pytest.raises(InvalidRequestError, match=r"it has objects/photo\.jpg"):
        instance.backup(own, keep=1)
    assert (own / "objects" / "photo.jpg").exists()
    instance.backup(place)
    with (
        sleeper.create_instance(tmp_path / "second") as second,
        pytest.raises(InvalidRequestError, match="holds backups of instance 'instance'"),
    ):
        second.backup(place)
    assert place.stat().st_mode & 0o077 == 0
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(NotFoundError, match="holds no backups"):
            sleeper.restore_instance(missing, tmp_path / "new")
    assert not (tmp_path / "nowhere").exists()


def test_only_one_process_writes_to_a_place(instance: Instance, place: Path) -> None:
    instance.backup(place)
    with (
        lock_root(DataRoot(place), "lock", "a backup of instance x", system_clock),
        pytest.raises(ConflictError, match=r"locked by a backup of instance x on .*process"),
    ):
        instance.backup(place)
    instance.backup(place)
    assert not (place / "lock").exists()


def test_a_restore_does_not_overwrite_tables(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    instance.backup(place)
    before = list_keys(instance.table("a"))
    with pytest.raises(ConflictError, match=r"table 'a' with id .* exists"):
        sleeper.restore_instance(place, tmp_path / "instance")
    assert list_keys(instance.table("a")) == before
    with sleeper.create_instance(tmp_path / "other") as other:
        other.create_table("b", SCHEMA).ingest(rows_of(1))
        with pytest.raises(ConflictError, match="table 'b' already exists, with id"):
            sleeper.restore_instance(place, tmp_path / "other")
        assert other.tables() == ["b"]
        assert list_keys(other.table("b")) == [1]
    # Data that lost its row in the index is not overwritten.
    ref = instance._ports.tables.index.find("b")
    left = tmp_path / "left"
    sleeper.create_instance(left).close()
    shutil.copytree(tmp_path / "instance" / ref.id, left / ref.id)
    with pytest.raises(ConflictError, match="that the table index does not list"):
        sleeper.restore_instance(place, left)


def test_other_processes_read_and_write_a_table_that_was_deleted_and_restored(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    instance.backup(place)
    with sleeper.open_instance(tmp_path / "instance") as other:
        table = other.table("b")
        assert list_keys(table) == [7, 8]
        delete_table(instance._ports, "b", now=True)
        assert finish_deletions(instance._ports) == 1
        sleeper.restore_instance(place, tmp_path / "instance", tables=["b"])
        instance.table("b").ingest(rows_of(9))
        assert list_keys(table) == [7, 8, 9]
        table.ingest(rows_of(10))
        assert list_keys(instance.table("b")) == [7, 8, 9, 10]


def test_a_damaged_data_file_is_not_backed_up(instance: Instance, place: Path) -> None:
    path = _data_path(instance, "b")
    content = path.read_bytes()
    path.write_bytes(content[:50] + b"damage" + content[56:])
    with pytest.raises(DataError, match=rf"cannot back up table 'b': .*{path.name} is damaged"):
        instance.backup(place)
    path.unlink()
    with pytest.raises(DataError, match=rf"cannot back up table 'b': .*{path.name}"):
        instance.backup(place)
    assert open_place_to_read(str(place)).ids() == []
    path.write_bytes(content)
    instance.backup(place)


def _data_path(instance: Instance, name: str) -> Path:
    ref = instance._ports.tables.index.find(name)
    with instance._ports.tables.state(ref.id).reading() as state:
        (file,) = state.files.all()
    return Path(instance._ports.storage.root.url_of(file.path))


@pytest.mark.parametrize(
    "kind", ["*.parquet", "*.filter", "*.db.zst", "*.objects.zst", "backups/*.json"]
)
@pytest.mark.parametrize("damage", ["changed", "shorter", "missing"])
def test_a_damaged_backup_is_not_restored(
    instance: Instance, place: Path, tmp_path: Path, kind: str, damage: str
) -> None:
    instance.backup(place, tables=["b"])
    (file,) = place.rglob(kind) if "/" not in kind else place.glob(kind)
    content = file.read_bytes()
    if damage == "changed":
        file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    elif damage == "shorter":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
    with pytest.raises(SleeperError) as caught:
        sleeper.restore_instance(place, tmp_path / "new")
    is_gone = damage == "missing" and kind == "backups/*.json"
    assert isinstance(caught.value, NotFoundError if is_gone else DataError)
    if not is_gone:
        assert file.stem in str(caught.value)
    if (tmp_path / "new").exists():
        with sleeper.open_instance(tmp_path / "new") as new:
            assert new.tables() == []
    # The same restore works once the file is replaced, as does the next backup without it.
    repaired = instance.backup(place, tables=["b"])
    if kind in {"*.parquet", "*.filter"} and damage == "changed":
        assert repaired.tables[0].copied_objects == 0  # only a restore reads what is there
    file.write_bytes(content)
    assert restored(place, tmp_path / "newer") == {"b": [7, 8]}


def test_a_damaged_backup_prevents_the_deletion_of_objects(instance: Instance, place: Path) -> None:
    instance.backup(place)
    before = objects(place)
    shape(instance)
    instance.backup(place)
    for manifest in (place / "backups").glob("*.json"):
        manifest.write_text(manifest.read_text().replace('"a"', '"x"'))
    with pytest.raises(DataError, match=r"manifest of backup .* is damaged"):
        instance.backup(place, keep=2)
    assert before <= objects(place)


def test_a_newer_format_is_refused(instance: Instance, place: Path, tmp_path: Path) -> None:
    instance.backup(place, tables=["b"])
    file = place / "sleeper-backup.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    for action in (
        lambda: instance.backup(place),
        lambda: sleeper.restore_instance(place, tmp_path / "new"),
    ):
        with pytest.raises(DataError, match="has format 2, this version reads up to 1"):
            action()


def test_a_folder_without_permission_is_unavailable(
    instance: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    place.mkdir()
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UnavailableError, match=r"cannot write .*permission denied"):
        instance.backup(place)


def test_a_killed_backup_is_repeated(
    instance: Instance, place: Path, tmp_path: Path, kill: Kill
) -> None:
    """It leaves no half backup, at whatever write it dies. The next one uses its copies."""
    expected = list_keys(instance.table("a"))
    deaths = 0
    for number in range(1, 1000):
        if place.exists() and number % 16 == 0:
            shutil.rmtree(place)
        kill.left = number
        try:
            instance.backup(place, tables=["a"], keep=2)
            break
        except Killed:
            deaths += 1
            if place.exists() and (place / "sleeper-backup.json").exists():
                for backup_id in open_place_to_read(str(place)).ids():
                    manifest = open_place_to_read(str(place)).read(backup_id)
                    assert manifest.tables[0].rows == 7
        finally:
            kill.left = None
    assert deaths > 20
    assert restored(place, tmp_path / "new")["a"] == expected
    assert list(place.rglob("*.unfinished")) == []


def test_a_killed_restore_is_repeated(
    instance: Instance,
    place: Path,
    tmp_path: Path,
    kill: Kill,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No table is visible before all are complete, at whatever write it dies."""
    from sleeper.local.folder import InstanceFolder, TablePropertyFiles
    from sleeper.local.table_index import LocalTableIndex

    expected = {name: list_keys(instance.table(name)) for name in ("a", "b")}
    instance.backup(place)
    for owner, name in (
        (LocalTableIndex, "create"),
        (TablePropertyFiles, "write"),
        (InstanceFolder, "make_table_folder"),
    ):
        monkeypatch.setattr(owner, name, kill.around(getattr(owner, name)))
    kill.left = 1000
    sleeper.restore_instance(place, tmp_path / "whole")
    points = 1000 - kill.left
    seen = set()
    # Copies of objects are alike. The last writes are not. At the very last all is done.
    for number in (*range(1, points - 8, 11), *range(points - 8, points)):
        target = tmp_path / f"new-{number}"
        kill.left = number
        with pytest.raises(Killed):
            sleeper.restore_instance(place, target)
        kill.left = None
        if (target / "instance.properties").exists():
            with sleeper.open_instance(target) as new:
                seen.add(tuple(new.tables()))
                for name in new.tables():
                    # It may be in use before the restore is repeated.
                    assert list_keys(new.table(name)) == expected[name]
                    new.table(name).delete(keys=[expected[name][:1]])
        result = sleeper.restore_instance(place, target)
        rows = {table.name: table.rows for table in result.tables}
        assert {**rows, **dict.fromkeys(result.earlier)}.keys() == {"a", "b"}
        if result.earlier:
            with sleeper.open_instance(target) as new:
                for name in ("a", "b"):
                    left = expected[name][1 if name in result.earlier else 0 :]
                    assert list_keys(new.table(name)) == left
        else:
            assert rows == {"a": 7, "b": 2}
        assert not (target / "restore.json").exists()
        assert not (target / "restore.lock").exists()
    assert seen == {(), ("a",), ("a", "b")}


def test_an_unfinished_restore_of_another_backup_is_not_continued(
    instance: Instance, place: Path, tmp_path: Path, kill: Kill
) -> None:
    first = instance.backup(place)
    kill.left = 12
    with pytest.raises(Killed):
        sleeper.restore_instance(place, tmp_path / "new")
    kill.left = None
    instance.backup(place)
    with pytest.raises(ConflictError, match=f"unfinished restore of backup {first.id}"):
        sleeper.restore_instance(place, tmp_path / "new")
    assert set(restored(place, tmp_path / "new", at=first.id)) == {"a", "b"}


def test_backups_of_an_instance_in_use_have_the_rows_of_their_version(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    numbers: dict[int, int] = {}
    stop = threading.Event()
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with sleeper.open_instance(tmp_path / "instance") as other:
                table = other.table("a")
                for key in range(100, 10_000):
                    if stop.is_set():
                        return
                    number = table.ingest(rows_of(key)).number
                    assert number is not None
                    numbers[key] = number
                    if key % 3 == 0:
                        shape(other)
        except BaseException as error:
            failures.append(error)

    first = list_keys(instance.table("a"))
    user = threading.Thread(target=use)
    user.start()
    try:
        versions = {}
        for _ in range(6):
            result = instance.backup(place, keep=4)
            versions[result.id] = result.tables[0].number
    finally:
        stop.set()
        user.join()
    assert not failures
    assert len(set(versions.values())) == 6
    for backup_id in open_place_to_read(str(place)).ids():
        keys = restored(place, tmp_path / backup_id, at=backup_id)["a"]
        added = [key for key, number in numbers.items() if number <= versions[backup_id]]
        assert keys == sorted([*first, *added])


def test_a_table_without_commits_for_long_is_backed_up(
    instance: Instance, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no commits until the clock is accepted, and so no hold either."""
    number = instance.table("b").version
    later = system_clock() + 40 * 24 * 3600 * 1000
    monkeypatch.setattr("sleeper.clock.time.time_ns", lambda: later * 1_000_000)
    result = instance.backup(place, tables=["b"])
    assert result.tables[0].number == number
    report = sleeper.restore_instance(place, tmp_path / "new")
    assert report.tables[0].is_stale
    with sleeper.open_instance(tmp_path / "new") as new:
        assert list_keys(new.table("b")) == [7, 8]


def test_the_state_file_of_a_table_names_its_objects(instance: Instance, tmp_path: Path) -> None:
    ref = instance._ports.tables.index.find("a")
    store = instance._ports.tables.state(ref.id)
    file = StateFile(tmp_path / "state.db")
    store.copy_version(instance.table("a").version, file.path)
    assert file.owners() == [ref.id]
    assert (file.content().files, file.content().rows) == (2, 7)
    before = list(file.objects())
    file.own_objects(ref.id)
    assert list(file.objects()) == before
    file.own_objects("ffffffff")
    assert file.owners() == ["ffffffff"]
    with sqlite3.connect(file.path) as connection:
        hashes = connection.execute("SELECT count(DISTINCT path_hash) FROM files").fetchone()
    assert hashes == (2,)
