"""Files that locks and atomic creation leave on the disk."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sleeper.aws.process_folder import ProcessFolder
from sleeper.storage import disk
from sleeper.storage.disk import create_whole_file, lock_file, locking_file


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def _lock(folder: Path) -> None:
    lock = lock_file(folder / "lock")
    assert lock is not None
    lock.release()


def _wait_for_lock(folder: Path) -> None:
    with locking_file(folder / "lock"):
        pass


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (_lock, 0o644),
        (_wait_for_lock, 0o644),
        (lambda folder: ProcessFolder(folder).path(), 0o600),
    ],
)
def test_only_the_owner_may_write_a_lock(
    make: Callable[[Path], object], mode: int, tmp_path: Path
) -> None:
    make(tmp_path)
    (lock,) = tmp_path.rglob("lock")
    assert stat.S_IMODE(lock.stat().st_mode) == mode


def test_a_name_that_another_process_took_is_durable_before_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, unfinished = tmp_path / "a", tmp_path / "a.unfinished"
    target.write_bytes(b"another")
    disk.make_folder(tmp_path)
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_folder", synced.append)
    assert not create_whole_file(target, b"own", unfinished)
    assert synced == [tmp_path]
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
