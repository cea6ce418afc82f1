"""Durable files on the simulated disk: synchronised ones survive, forgotten syncs are found."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from simulation.calls import Fault
from simulation.disk import Disk, install_disk, install_waits
from simulation.local.disk import InlineExecutor
from sleeper.storage import disk as files
from tests.simulation.disk.worlds import Countdown, Killed

Files = dict[str, bytes | None]
"""The content of files by their names, None for files that were deleted."""


@pytest.fixture(autouse=True)
def _ordered_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_sync_threads", InlineExecutor)


@contextmanager
def installed(folder: Path, hooks: Countdown) -> Iterator[Disk]:
    disk = install_disk(folder, hooks)
    try:
        yield disk
    finally:
        hooks.left = -1
        disk.uninstall()


class Changes:
    """Random changes of files, of which `durable` records those that have ended."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.durable: Files = {}
        self.changing: Files = {}
        self._count = 0

    def make(self) -> None:
        name = f"{self.random.choice('ab')}/{self.random.choice('cd')}/{self.random.randrange(6)}"
        content = self.random.randbytes(self.random.choice((3, 700, 3000)))
        change = self.random.choice((self.create, self.replace, self.write_several, self.delete))
        change(name, content)
        self.durable |= self.changing
        self.changing = {}

    def unfinished(self) -> Path:
        self._count += 1
        return self.folder / f"{self._count}.unfinished"

    def create(self, name: str, content: bytes) -> None:
        if self.durable.get(name) is None:
            self.changing = {name: content}
            target = self.folder / name
            files.make_folder(target.parent)
            assert files.create_whole_file(target, content, self.unfinished())

    def replace(self, name: str, content: bytes) -> None:
        self.changing = {name: content}
        target = self.folder / name
        files.make_folder(target.parent)
        with files.replacing_file(target, self.unfinished()) as file:
            file.write_bytes(content)

    def write_several(self, name: str, content: bytes) -> None:
        # Before they are synchronised, these may have any content.
        self._count += 1
        names = [f"{name}-{self._count}-{number}" for number in range(3)]
        files.make_folder((self.folder / name).parent)
        for each in names:
            (self.folder / each).write_bytes(content)
        files.sync_files([self.folder / each for each in names])
        self.changing = dict.fromkeys(names, content)

    def delete(self, name: str, _content: bytes) -> None:
        self.changing = {name: None}
        files.make_folder((self.folder / name).parent)
        files.delete_durably([self.folder / name])

    def check(self) -> None:
        """Checks the files. A change that had not ended has happened or not, as a whole."""
        for name, content in self.durable.items():
            present = self.content(name)
            assert present == content or (name in self.changing and self.is_new(name)), name
            self.durable[name] = present
        for name in self.changing:
            present = self.content(name)
            assert self.is_new(name) or present == self.durable.get(name), name
            self.durable[name] = present
        self.changing = {}

    def content(self, name: str) -> bytes | None:
        path = self.folder / name
        return path.read_bytes() if path.exists() else None

    def is_new(self, name: str) -> bool:
        return self.content(name) == self.changing[name]


def lose_power_often(folder: Path, seed: int) -> list[tuple[str, bytes]]:
    """Changes files, loses power and checks the files. Returns the files in the end."""
    random = Random(seed)
    hooks = Countdown(random)
    changes = Changes(folder, random)
    with installed(folder, hooks) as disk:
        for _ in range(8):
            hooks.left = random.randrange(100)
            with suppress(Killed):
                while True:
                    changes.make()
            disk.lose_power(random)
            hooks.left = -1
            changes.check()
        return [
            (str(path.relative_to(folder)), path.read_bytes())
            for path in folder.rglob("*")
            if path.is_file()
        ]


def finds_a_bug(folder: Path) -> bool:
    """Returns whether one of several seeds fails."""
    for seed in range(20):
        path = folder / str(seed)
        path.mkdir()
        try:
            lose_power_often(path, seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_durable_files_survive(folder: Path, seed: int) -> None:
    lose_power_often(folder, seed)


def test_the_same_seed_leaves_the_same_files(folder: Path) -> None:
    first = lose_power_often(folder, 1)
    folder.rename(folder.with_name("first"))
    folder.mkdir()
    assert lose_power_often(folder, 1) == first


def keep_folders_unsynced(sync: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda path: None if path.is_dir() else sync(path)


def keep_files_unsynced(sync: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda path: sync(path) if path.is_dir() else None


@pytest.mark.parametrize("plant", [keep_folders_unsynced, keep_files_unsynced])
def test_a_forgotten_sync_is_found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Callable[[Path], None]], Callable[[Path], None]],
) -> None:
    monkeypatch.setattr(files, "_sync", plant(files._sync))
    assert finds_a_bug(folder)


def test_a_forgotten_sync_of_a_new_folder_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "make_folder", lambda path: path.mkdir(parents=True, exist_ok=True))
    assert finds_a_bug(folder)


def test_a_replacement_that_is_not_atomic_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(target: Path, file: Path) -> None:
        target.unlink(missing_ok=True)
        files.sync_folder(target.parent)
        files.sync_file(file)
        file.rename(target)
        files.sync_folder(target.parent)

    monkeypatch.setattr(files, "replace_file", replace)
    assert finds_a_bug(folder)


def test_a_full_disk_refuses_new_names(folder: Path) -> None:
    hooks = Countdown(Random(1), faulty=("create", "link", "make folder"))
    (folder / "old").write_bytes(b"old")
    with installed(folder, hooks):
        hooks.fault = Fault.FULL
        for refused in (
            lambda: (folder / "file").write_bytes(b""),
            lambda: os.link(folder / "old", folder / "file"),
            lambda: (folder / "file").mkdir(),
        ):
            with pytest.raises(OSError, match="No space left"):
                refused()
        assert os.listdir(folder) == ["old"]


def test_a_sync_that_the_disk_refuses_makes_nothing_durable(folder: Path) -> None:
    hooks = Countdown(Random(1))
    with installed(folder, hooks) as disk:
        hooks.fault = Fault.UNAVAILABLE
        for number in range(20):
            (folder / str(number)).write_bytes(b"content")
            with pytest.raises(OSError, match="Input/output error"):
                files.sync_file(folder / str(number))
        disk.lose_power(Random(2))
        assert len(os.listdir(folder)) < 20


def test_a_dead_process_changes_nothing_and_holds_no_lock(folder: Path) -> None:
    hooks = Countdown(Random(1))
    (folder / "old").write_bytes(b"old")
    with installed(folder, hooks) as disk:
        lock = files.lock_file(folder / "lock")
        assert lock is not None
        assert files.lock_file(folder / "lock") is None
        hooks.left = 0
        with pytest.raises(Killed):
            (folder / "old").unlink()
        with pytest.raises(Killed):
            (folder / "old").rename(folder / "new")
        hooks.left = -1
        disk.end("process")
        hooks.name = "other"
        other = files.lock_file(folder / "lock")
        assert other is not None
        lock.release()
        assert files.lock_file(folder / "lock") is None
        other.release()
        assert sorted(os.listdir(folder)) == ["lock", "old"]


def test_a_reused_descriptor_keeps_its_lock(folder: Path) -> None:
    hooks = Countdown(Random(1))
    with installed(folder, hooks) as disk:
        first = files.lock_file(folder / "lock")
        assert first is not None
        first.release()
        hooks.name = "other"
        second = files.lock_file(folder / "lock")
        assert second is not None
        disk.end("process")
        assert files.lock_file(folder / "lock") is None
        second.release()


def test_names_are_sorted_and_times_are_virtual(folder: Path) -> None:
    hooks = Countdown(Random(1))
    with installed(folder, hooks) as disk:
        for name in "bca":
            (folder / name).write_bytes(b"")
        assert os.listdir(folder) == [path.name for path in folder.glob("*")] == ["a", "b", "c"]
        assert (folder / "a").stat().st_mtime_ns == hooks.now_ms() * 1_000_000
        hooks.sleep(60)
        assert (folder / "a").stat().st_mtime_ns == (hooks.now_ms() - 60_000) * 1_000_000
        (folder / "a").write_bytes(b"changed")
        assert (folder / "a").stat().st_mtime_ns == hooks.now_ms() * 1_000_000
        files.sync_files([folder / name for name in "abc"])
        disk.lose_power(Random(1))
        hooks.sleep(60)
        assert (folder / "b").stat().st_mtime_ns == (hooks.now_ms() - 60_000) * 1_000_000


def test_a_removed_folder_may_come_back_with_its_files(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "file").write_bytes(b"content")
    outcomes = set()
    for seed in range(40):
        with installed(folder, Countdown(Random(1))) as disk:
            (folder / "old" / "file").unlink()
            (folder / "old").rmdir()
            disk.lose_power(Random(seed))
        outcomes.add(tuple(path.name for path in sorted(folder.rglob("*"))))
        (folder / "old").mkdir(exist_ok=True)
        (folder / "old" / "file").write_bytes(b"content")
    assert outcomes == {(), ("old",), ("old", "file")}


def test_a_renamed_file_keeps_one_name_at_least(folder: Path) -> None:
    outcomes = set()
    for seed in range(30):
        for path in folder.iterdir():
            path.unlink()
        (folder / "a").write_bytes(b"content")
        with installed(folder, Countdown(Random(1))) as disk:
            (folder / "a").rename(folder / "b")
            disk.lose_power(Random(seed))
        outcomes.add(tuple(sorted(path.name for path in folder.iterdir())))
        assert all(path.read_bytes() == b"content" for path in folder.iterdir())
    assert outcomes == {("a",), ("b",), ("a", "b")}


@dataclass
class DyingAtSync(Countdown):
    """A process that dies at its first synchronisation."""

    def before(self, operation: str, path: str) -> Fault | None:
        if operation == "sync" and self.name == "process":
            raise Killed
        return None


@pytest.mark.parametrize("seed", range(10))
def test_a_file_in_a_folder_that_a_dead_process_made_survives(folder: Path, seed: int) -> None:
    hooks = DyingAtSync(Random(seed))
    with installed(folder, hooks) as disk, contextlib.closing(ExitStack()) as stack:
        stack.callback(install_waits(hooks))
        target = folder / "a" / "b" / "file"
        with pytest.raises(Killed):
            files.make_folder(target.parent)
        disk.end("process")
        hooks.name = "other"
        files.make_folder(target.parent)
        assert files.create_whole_file(target, b"content", folder / "unfinished")
        disk.lose_power(Random(seed))
        assert target.read_bytes() == b"content"
