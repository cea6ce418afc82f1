"""The worker processes of a runner: started, replaced when they die, ended."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import UnavailableError

_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
# A worker that dies so soon, without a message, does not start properly.
_EARLY_SECONDS = 5.0
_EARLY_DEATHS_MAX = 50
_STOP_SECONDS = 30.0
_TERMINATE_SECONDS = 10.0


class WorkerPool:
    """So many workers for the instance of a folder. Nothing is started before `keep_up`."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count
        self._workers: list[_Worker] = []
        self._early_deaths = 0
        self._no_start_before = 0.0

    def __len__(self) -> int:
        return len(self._workers)

    def keep_up(self, release_messages: Callable[[], int]) -> int:
        """Replaces workers that died and returns how many did.

        With a growing pause if they die one after another at their start, and in the end
        UnavailableError. `release_messages` returns the messages of dead processes to their
        queues, and how many they were. The death of a worker that had a message is a failure
        of the message, which becomes a dead letter if it repeats, and none of the pool.
        """
        died = [w for w in self._workers if w.process.poll() is not None]
        released = release_messages() if died else 0
        self._workers = [w for w in self._workers if w not in died]
        for worker in died:
            worker.let_go()
            if not released:
                self._pause_after(worker)
        if released:
            self._early_deaths = 0
        while len(self._workers) < self._count and time.monotonic() >= self._no_start_before:
            self._workers.append(_start_worker(self._folder))
        return len(died)

    def stop(self) -> None:
        """Lets the workers finish their jobs, for a while."""
        for worker in self._workers:
            worker.let_go()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in self._workers:
            worker.end(max(0.0, deadline - time.monotonic()))
        self._workers.clear()

    def _pause_after(self, worker: "_Worker") -> None:
        now = time.monotonic()
        self._early_deaths = self._early_deaths + 1 if now - worker.started < _EARLY_SECONDS else 0
        if self._early_deaths >= _EARLY_DEATHS_MAX:
            raise UnavailableError(
                f"{self._early_deaths} workers died at their start, the last with status "
                f"{worker.process.returncode}: look at what they say on standard error"
            )
        pause = _FIRST_PAUSE_SECONDS * 2**self._early_deaths if self._early_deaths else 0.0
        self._no_start_before = now + min(pause, _PAUSE_SECONDS_MAX)


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A worker process, and when it was started."""

    process: subprocess.Popen[bytes]
    started: float

    def let_go(self) -> None:
        """Tells it to end after its job: its standard input is at its end."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, seconds: float) -> None:
        """Waits so long, then ends it: first so that it gives its job back, then at once."""
        if self._has_ended(seconds):
            return
        self.process.terminate()
        if not self._has_ended(_TERMINATE_SECONDS):
            self.process.kill()
            self.process.wait()

    def _has_ended(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _start_worker(folder: Path) -> _Worker:
    command = [sys.executable, "-P", "-m", "sleeper.wiring.local_worker", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    return _Worker(process, time.monotonic())
