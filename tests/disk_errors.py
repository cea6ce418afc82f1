"""A disk that fails to write, as Linux reports it: one sync fails, and the next one succeeds."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import UnavailableError


@dataclass
class FailingDisk:
    """Makes one sync of this process fail, of each kind and place in turn.

    The kind is a file's suffix, or `folder`. The place counts the syncs of that kind, because
    files are synchronized at once. `lost` are the inodes whose content did not reach the disk; a
    later sync does not change that. `unsynced` are the folders whose names did not, until then.
    """

    failed: set[tuple[str, int]] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    unsynced: set[Path] = field(default_factory=set)
    failure: str | None = None
    is_failing: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Makes the first sync fail that did not fail before."""
        self.is_failing, self.failure = True, None
        self.counts.clear()
        try:
            yield
        finally:
            self.is_failing = False

    @property
    def kinds(self) -> set[str]:
        """The kinds of files that failed."""
        return {kind for kind, _ in self.failed}

    def watched(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            if self.is_failing and self.failure is None:
                self._fail(descriptor)
            sync(descriptor)
            self.unsynced.discard(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        return call

    def _fail(self, descriptor: int) -> None:
        path, status = os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
        kind = "folder" if stat.S_ISDIR(status.st_mode) else Path(path).suffix
        place = (kind, self.counts[kind])
        self.counts[kind] += 1
        if place not in self.failed:
            self.failure = path
            self.failed.add(place)
            if kind == "folder":
                self.unsynced.add(Path(path))
            else:
                self.lost.add(status.st_ino)
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    disk = FailingDisk()
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, disk.watched(getattr(os, name)))
    return disk


def fail_each_sync(
    disk: FailingDisk,
    action: Callable[[], Any],
    version: Callable[[], Any],
    named: Callable[[], Iterable[Path]],
    renames: bool = False,
    durable: Callable[[], Iterable[Path]] | None = None,
) -> None:
    """Repeats the action with an error at its first sync, its second, and so on.

    Each error must fail the action, leave `version` as it is, and no file in `named` whose content
    did not reach the disk. Ends when no sync is left that did not fail; the names in `durable`, by
    default in `named`, are on the disk then too. If the last step `renames` a whole file, an error
    at the sync of its folder leaves the file with its new name.
    """
    while True:
        before = version()
        with disk.failing():
            try:
                action()
            except UnavailableError:
                assert disk.failure is not None
            else:
                if disk.failure is None:
                    assert version() != before
                    assert not {path.parent for path in (durable or named)()} & disk.unsynced
                    return
                pytest.fail(f"an error at the sync of {disk.failure} is lost")
        if not (renames and Path(disk.failure).is_dir()):
            assert version() == before, disk.failure
        for path in named():
            assert path.stat().st_ino not in disk.lost, f"{path} is named, and not on the disk"
