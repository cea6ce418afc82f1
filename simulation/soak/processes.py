"""The processes of a soak: started, killed, stopped for a while, and given wrong clocks."""

import contextlib
import json
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psutil

from simulation.soak.journal import Journal
from tests.process_tree import descendants

_STOP_SECONDS = 20.0
SPARK_KIND = "Spark"
"""The kind of a client with a Spark session."""
CLOCK_VARIABLE = "SLEEPER_TEST_CLOCK"
"""Names the clock file of a process; see `tests/startup/sitecustomize.py`."""


class WrongClock:
    """By how many seconds the clock of processes is ahead, in a file that they read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(struct.pack("d", 0.0))

    def set(self, seconds: float) -> None:
        """Changes the clock of the running processes."""
        with self.path.open("r+b") as file:
            file.write(struct.pack("d", seconds))


@dataclass
class Process:
    """A process that is started again whenever it has ended.

    Its name is that of its log. `kind` is what the journal counts faults by. One that
    `is_asked_to_end` stores its state at its end, so that SIGKILL would lose it.
    """

    name: str
    kind: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    has_pipes: bool = False
    is_asked_to_end: bool = False
    process: subprocess.Popen[bytes] | None = None
    resume_at: float | None = None
    stopped: list[psutil.Process] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it, with its output at the end of its log."""
        self._close_input()
        pipe = subprocess.PIPE if self.has_pipes else None
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or log,
                stderr=log,
            )
        return self.process

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self.process is not None and self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Returns the process and its descendants; none if it has ended."""
        if not self.is_alive or self.process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [psutil.Process(self.process.pid), *descendants(self.process.pid)]
        return []

    def pause(self, victim: psutil.Process, seconds: float) -> None:
        """Stops a process of the tree; `resume_if_due` lets it go on."""
        self.stopped = [victim]
        _send(self.stopped, signal.SIGSTOP)
        self.resume_at = time.monotonic() + seconds

    def restart(self) -> None:
        """Kills the process, or asks it to end, and starts it again."""
        if self.is_asked_to_end:
            self.end()
        self.kill()
        self.start()

    def resume_if_due(self, is_forced: bool = False) -> None:
        """Lets a stopped process go on if its time is over."""
        if self.resume_at is not None and (is_forced or time.monotonic() >= self.resume_at):
            _send(self.stopped, signal.SIGCONT)
            self.stopped, self.resume_at = [], None

    def kill(self) -> None:
        """Kills the process with its descendants."""
        tree = self.tree()
        _send(tree, signal.SIGKILL)
        _send(self.stopped, signal.SIGKILL)
        self.stopped, self.resume_at = [], None
        if self.process is not None:
            self.process.wait(_STOP_SECONDS)
        self._close_input()

    def _close_input(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # of a process that was killed
                self.process.stdin.close()

    def end(self) -> None:
        """Ends the process with SIGTERM, or kills it if it does not end in time."""
        self.resume_if_due(is_forced=True)
        if self.process is not None and self.is_alive:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
        self.kill()


def _send(processes: Sequence[psutil.Process], signal_: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal_)


class Client(Process):
    """A process that runs one operation at a time."""

    _answers: SimpleQueue[dict[str, Any]]

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it. It reads its first operation when it is ready."""
        process = super().start()
        self._answers = SimpleQueue()
        reader = threading.Thread(target=_read, args=(process, self._answers), daemon=True)
        reader.start()
        return process

    def send(self, request: Mapping[str, object]) -> None:
        """Begins an operation."""
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # seen as its death
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """Returns what it said, or None if it has not said anything."""
        with contextlib.suppress(Empty):
            return self._answers.get_nowait()
        return None


def _read(process: "subprocess.Popen[bytes]", answers: "SimpleQueue[dict[str, Any]]") -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # of a process that was killed
                answers.put(json.loads(line))


def end_all(processes: Sequence[Process], journal: Journal) -> None:
    """Ends the processes at once."""
    for process in processes:
        process.resume_if_due(is_forced=True)
        if process.process is not None and process.is_alive:
            process.process.terminate()
    for process in processes:
        process.end()
    journal.record("ended", processes=[process.name for process in processes])
