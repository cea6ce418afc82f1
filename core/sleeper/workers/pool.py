"""A pool of worker processes of a local instance."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sleeper.errors import UnavailableError

WORKER_MODULE = "sleeper.workers.local_worker"
_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0
# A worker that dies so soon, without a message, does not start properly.
_EARLY_SECONDS = 5.0
_EARLY_DEATHS_MAX = 50
# Together less than `sleeper run` has after SIGTERM.
_STOP_SECONDS = 4.0
_TERMINATE_SECONDS = 3.0
_READ_SECONDS = 0.5


class WorkerPool:
    """A number of worker processes of a local instance, which `keep_up` starts.

    They run the module. Their early deaths are an error unless `gives_up` is false. `on_line`
    receives each line that they write to standard output, from other threads.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        module: str = WORKER_MODULE,
        gives_up: bool = True,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self._folder = folder
        self._count = count
        self._module = module
        self._gives_up = gives_up
        self._on_line = on_line
        self._workers: list[_Worker] = []
        self._early_deaths = 0
        self._no_start_before = 0.0

    def __len__(self) -> int:
        return len(self._workers)

    def keep_up(self, release_messages: Callable[[], int]) -> int:
        """Replaces dead workers and returns their number.

        Waits longer each time if workers keep dying at their start, and finally raises
        UnavailableError. `release_messages` returns the messages of dead processes to their
        queues, and returns their number. A worker that dies with a message counts as a failure of
        the message, which becomes a dead letter if it repeats, and not as a failed start.
        """
        dead = [w for w in self._workers if w.process.poll() is not None]
        released = release_messages() if dead else 0
        self._workers = [w for w in self._workers if w not in dead]
        for worker in dead:
            worker.close_input()
            worker.finish_reading()
            if not released:
                self._pause_after(worker)
        if released:
            self._early_deaths = 0
        while len(self._workers) < self._count and time.monotonic() >= self._no_start_before:
            self._workers.append(_start_worker(self._folder, self._module, self._on_line))
        return len(dead)

    def stop(self) -> None:
        """Stops the workers. Their jobs have a limited time to finish."""
        stop_pools(self)

    def take_workers(self) -> "list[_Worker]":
        """Removes all workers from the pool and returns them."""
        workers, self._workers = self._workers, []
        return workers

    def _pause_after(self, worker: "_Worker") -> None:
        now = time.monotonic()
        self._early_deaths = self._early_deaths + 1 if now - worker.started < _EARLY_SECONDS else 0
        if self._early_deaths >= _EARLY_DEATHS_MAX and self._gives_up:
            raise UnavailableError(
                f"{self._early_deaths} workers died at their start, the last with status "
                f"{worker.process.returncode}: see their standard error"
            )
        doublings = min(self._early_deaths, _EARLY_DEATHS_MAX)
        pause = _FIRST_PAUSE_SECONDS * 2**doublings if doublings else 0.0
        self._no_start_before = now + min(pause, _PAUSE_SECONDS_MAX)


def stop_pools(*pools: WorkerPool) -> None:
    """Stops the workers of all pools at the same time.

    Each finishes its current job or is terminated, which returns its job, and finally killed.
    """
    workers = [worker for pool in pools for worker in pool.take_workers()]
    for worker in workers:
        worker.close_input()
    workers_left = _wait_for_end(workers, _STOP_SECONDS)
    for worker in workers_left:
        worker.process.terminate()
    for worker in _wait_for_end(workers_left, _TERMINATE_SECONDS):
        worker.process.kill()
        worker.process.wait()
    for worker in workers:
        worker.finish_reading()


def _wait_for_end(workers: "Sequence[_Worker]", seconds: float) -> "list[_Worker]":
    """Returns the workers that have not ended after so many seconds."""
    deadline = time.monotonic() + seconds
    return [w for w in workers if not w.has_ended(max(0.0, deadline - time.monotonic()))]


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A worker process and its start time."""

    process: subprocess.Popen[bytes]
    started: float
    reader: threading.Thread | None = None

    def close_input(self) -> None:
        """Closes its standard input, which ends it after its current job."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def finish_reading(self) -> None:
        """Waits until the last lines of an ended process are read."""
        if self.reader is not None:
            self.reader.join(_READ_SECONDS)

    def has_ended(self, seconds: float) -> bool:
        """Returns whether the process ends within so many seconds."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _start_worker(folder: Path, module: str, on_line: Callable[[str], None] | None) -> _Worker:
    command = [sys.executable, "-P", "-m", module, str(folder)]
    stdout = subprocess.DEVNULL if on_line is None else subprocess.PIPE
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout)
    reader = None
    if on_line is not None and process.stdout is not None:
        arguments = (process.stdout, on_line)
        reader = threading.Thread(target=_read_lines, args=arguments, daemon=True)
        reader.start()
    return _Worker(process, time.monotonic(), reader)


def _read_lines(stream: IO[bytes], on_line: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            on_line(line.decode(errors="replace"))
