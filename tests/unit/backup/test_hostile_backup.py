"""A backup that someone wrote to reach files outside of the restored instance."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import sleeper
from sleeper.api import Instance
from sleeper.backup.manifest import Manifest, ObjectRecord, TableBackup, encode_manifest
from sleeper.backup.objects import FileRecord, read_records, write_records
from sleeper.backup.place import BackupPlace, compress, decompress, open_place_to_read
from sleeper.errors import DataError, SleeperError
from sleeper.tables import TableId

CHECKSUM = "0" * 32


def rewrite(place: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Replaces the only backup by one with a changed manifest, and a checksum that fits."""
    backups = open_place_to_read(str(place))
    (backup_id,) = backups.ids()
    name, content = encode_manifest(change(backups.read(backup_id)))
    (place / "backups" / f"{backup_id}.json").unlink()
    (place / "backups" / f"{name}.json").write_bytes(content)


def with_adapter(path: str) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(manifest, definitions=((path, "{}"),))


def with_wheel(path: str) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(manifest, wheels=(ObjectRecord(path, 1, CHECKSUM),))


def with_table(
    change: Callable[[TableBackup], TableBackup],
) -> Callable[[Manifest], Manifest]:
    return lambda manifest: replace(manifest, tables=(change(manifest.tables[0]),))


HOSTILE: dict[str, Callable[[Manifest], Manifest]] = {
    "adapter": with_adapter("adapters/../../x.json"),
    "adapter elsewhere": with_adapter("instance.properties"),
    "absolute adapter": with_adapter("/tmp/x.json"),
    "adapter in a folder": with_adapter("adapters/a/x.json"),
    "wheel": with_wheel("code/ab/../../../x-1.0-py3-none-any.whl"),
    "wheel without a name": with_wheel("code/ab/.."),
    "table id": with_table(lambda table: replace(table, id=TableId("../../xx"))),
    "table name": with_table(lambda table: replace(table, name="a/../b")),
    "state": with_table(
        lambda table: replace(table, state=replace(table.state, path=f"{table.id}/../../x"))
    ),
    "state of another": with_table(
        lambda table: replace(table, state=replace(table.state, path="code/x"))
    ),
    "list": with_table(
        lambda table: replace(table, objects=replace(table.objects, path="../backups/x"))
    ),
    "equal tables": lambda manifest: replace(manifest, tables=manifest.tables[:1] * 2),
    "properties": with_table(lambda table: replace(table, properties="no.such.property=1")),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_manifest_is_checked_as_a_whole_before_anything_is_written(
    instance: Instance, place: Path, tmp_path: Path, kind: str
) -> None:
    instance.backup(place)
    rewrite(place, HOSTILE[kind])
    with sleeper.create_instance(tmp_path / "inner/new") as new:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SleeperError):
            sleeper.restore_instance(place, tmp_path / "inner/new")
        assert sorted(tmp_path.rglob("*")) == before
        assert new.tables() == []
    if kind != "properties":  # whose validity depends on the instance
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(DataError, match=r"the manifest of backup .* is damaged"):
            sleeper.restore_instance(place, tmp_path / "newer")
        assert sorted(tmp_path.rglob("*")) == before


def test_paths_in_a_state_that_leave_the_instance_are_refused(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    instance.backup(place, tables=["b"])
    folder, backups = tmp_path / "work", open_place_to_read(str(place))
    folder.mkdir()

    def change(table: TableBackup) -> TableBackup:
        bad = f"{table.id}/../../x.parquet"
        return replace(
            table,
            state=hostile_state(backups, table, folder, bad),
            objects=hostile_list(backups, table, folder, bad),
        )

    rewrite(place, with_table(change))
    with pytest.raises(DataError, match="invalid path"):
        sleeper.restore_instance(place, tmp_path / "inner/new")
    assert not list(tmp_path.rglob("x.parquet"))
    assert {p.name for p in tmp_path.iterdir()} == {"instance", "place", "work", "inner"}
    assert [p.name for p in (tmp_path / "inner").iterdir()] == ["new"]


def hostile_state(place: BackupPlace, table: TableBackup, folder: Path, path: str) -> ObjectRecord:
    compressed, state = folder / "state.db.zst", folder / "state.db"
    place.fetch(table.state, compressed)
    decompress(compressed, state, "state")
    with closing(sqlite3.connect(state)) as connection:
        connection.execute("UPDATE files SET path = ?", (path,))
        connection.commit()
    compress(state, compressed)
    return place.put(f"{table.id}/states/hostile.db.zst", compressed)


def hostile_list(place: BackupPlace, table: TableBackup, folder: Path, path: str) -> ObjectRecord:
    listed, changed = folder / "listed", folder / "changed"
    place.fetch(table.objects, listed)
    (record,) = read_records(listed, "list")
    old = record.path
    moved = (replace(o, path=path + o.path.removeprefix(old)) for o in record.objects)
    with write_records(changed) as add:
        add(FileRecord(tuple(moved)))
    return place.put(f"{table.id}/states/hostile.objects.zst", changed)
