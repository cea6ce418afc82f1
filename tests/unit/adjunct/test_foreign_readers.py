"""Readers of a store on disk that may not write to its folder."""

import os
import stat
from pathlib import Path

import pytest

from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.engines.rocksdb import RocksDbEngine


def put(engine: RocksDbEngine, **values: bytes) -> None:
    engine.apply((Writes([name.encode() for name in values], list(values.values())),), b"state")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store whose files nobody but the writer may change."""
    folder, access = tmp_path / "store", os.access

    def refuse(path: Path, mode: int) -> bool:
        return folder not in (path, *Path(path).parents) and access(path, mode)

    monkeypatch.setattr(os, "access", refuse)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return folder


def test_only_the_owner_may_write_the_files_of_a_store(folder: Path) -> None:
    engine = RocksDbEngine(folder)
    put(engine, a=b"1")
    engine.close()
    modes = [each.stat().st_mode for each in folder.iterdir()]
    assert not any(mode & stat.S_IWOTH for mode in modes)


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_reader_without_write_permission_changes_nothing(folder: Path, is_fixed: bool) -> None:
    engine = RocksDbEngine(folder)
    put(engine, a=b"1")
    engine.sync()
    engine.close()
    config = folder / "rocksdict-config.json"
    config.chmod(0o444)
    before = config.stat()
    reader = RocksDbEngine(folder, reads_only=not is_fixed, is_fixed=is_fixed)
    assert reader.get(b"a") == b"1"
    reader.close()
    assert config.stat().st_mtime_ns == before.st_mtime_ns


def test_a_reader_without_write_permission_follows_the_writer(folder: Path) -> None:
    engine = RocksDbEngine(folder)
    put(engine, a=b"1")
    reader = RocksDbEngine(folder, reads_only=True)
    put(engine, b=b"2")
    assert reader.catch_up()
    assert reader.get_many([b"a", b"b"]) == [b"1", b"2"]
    engine.sync()
    put(engine, c=b"3")
    # There are new files, so it is opened again.
    assert not reader.catch_up()
    reader.close()
    reader = RocksDbEngine(folder, reads_only=True)
    assert reader.get_many([b"a", b"b", b"c"]) == [b"1", b"2", b"3"]
    reader.close()
    engine.close()
