"""Waits of the product for other processes take virtual time, and keep their timeouts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from simulation.disk import DirectHooks, install_disk, install_waits
from sleeper.errors import UnavailableError
from sleeper.statestore.commit_queue import CommitQueue, Returned
from sleeper.statestore.write_lock import LOCK_SECONDS_MAX, WriteLock
from sleeper.storage import disk as storage
from sleeper.storage.disk import locking_file, make_folder
from tests.simulation.disk.worlds import Countdown


@dataclass
class Waiting(Countdown):
    """Runs an action during the first wait."""

    during: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        during, self.during = self.during, lambda: None
        during()


@pytest.fixture
def hooks(folder: Path) -> Iterator[Waiting]:
    hooks = Waiting(Random(1))
    disk = install_disk(folder, hooks)
    restore = install_waits(hooks)
    yield hooks
    restore()
    disk.uninstall()


def waited_seconds(hooks: DirectHooks, wait: Callable[[], object]) -> float:
    start_ms = hooks.now_ms()
    wait()
    return (hooks.now_ms() - start_ms) / 1000


def test_a_write_lock_waits_for_its_holder_with_a_timeout(folder: Path, hooks: Waiting) -> None:
    holder, waiter = WriteLock(folder / "lock"), WriteLock(folder / "lock")
    holder.acquire()

    def wait_in_vain() -> None:
        with pytest.raises(UnavailableError, match="locked by another process"):
            waiter.acquire()

    assert waited_seconds(hooks, wait_in_vain) == pytest.approx(LOCK_SECONDS_MAX, abs=1)
    hooks.during = holder.release
    assert 0 < waited_seconds(hooks, waiter.acquire) < 1
    assert not holder.try_acquire()
    holder.close()
    waiter.close()


def test_a_lock_on_a_file_is_waited_for(folder: Path, hooks: Waiting) -> None:
    holder = WriteLock(folder / "lock")
    holder.acquire()
    hooks.during = holder.close

    def wait() -> None:
        with locking_file(folder / "lock"):
            pass

    assert 0 < waited_seconds(hooks, wait) < 1


def test_an_answer_is_waited_for_with_a_timeout(folder: Path, hooks: Waiting) -> None:
    (folder / "lock").touch()
    sender, leader = CommitQueue(folder / "lock"), CommitQueue(folder / "lock")
    assert waited_seconds(hooks, lambda: leader.wait(30)) == 0  # there is no pipe
    assert sender.send("id", [(True, ("line",))])
    assert waited_seconds(hooks, lambda: leader.wait(30)) == 0
    (submission,) = leader.take()
    assert waited_seconds(hooks, lambda: leader.wait(30)) == pytest.approx(0.03)
    assert waited_seconds(hooks, lambda: sender.receive("id", 2)) == pytest.approx(2, abs=0.01)
    hooks.during = lambda: leader.answer(submission, Returned.ALONE)
    assert sender.receive("id", 2) is Returned.ALONE
    sender.close()
    leader.close()


def test_a_process_does_not_know_the_folders_that_another_one_made(
    folder: Path, hooks: Waiting
) -> None:
    make_folder(folder / "new")
    assert storage._durable.get(str(folder / "new"))
    hooks.name = "other"
    assert not storage._durable.get(str(folder / "new"))
