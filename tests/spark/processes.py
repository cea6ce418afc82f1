"""Processes that Spark starts: found, killed, and how much memory they took."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import psutil

from tests.process_tree import children, descendants

MIB = 1024**2
# The kernel keeps the peak of a process, so that looks can only miss what its last moment adds.
_SECONDS_BETWEEN_LOOKS = 0.25


def family(pid: int) -> list[psutil.Process]:
    """The process and its descendants, as far as they live."""
    try:
        return [psutil.Process(pid), *descendants(pid)]
    except psutil.NoSuchProcess:
        return []


def kill_family(pid: int) -> None:
    """The Python of a driver, its JVM and the JVM's executors, Python daemons and workers."""
    for process in family(pid):
        # Whoever leads a group takes it along, and may be gone when its turn comes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(process.pid), signal.SIGKILL)


def javas(pid: int) -> list[psutil.Process]:
    """The JVMs below the process."""
    return [p for p in family(pid) if "org.apache.spark" in read_command(p)]


def executors(pid: int) -> list[psutil.Process]:
    """The JVMs of executors of the driver, where those are processes of their own."""
    return [p for p in family(pid) if "CoarseGrainedExecutorBackend" in read_command(p)]


def python_workers(pid: int) -> list[psutil.Process]:
    """Returns the Python workers of the driver's tasks: children of Spark's Python daemons."""
    daemons = [p for p in family(pid) if "pyspark.daemon" in read_command(p)]
    return [worker for daemon in daemons for worker in children(daemon.pid)]


def read_command(process: psutil.Process) -> str:
    """Its command line; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


class PeakMemory:
    """The most that one of some processes had resident, as long as a `with` lasts."""

    def __init__(self, find: Callable[[], Iterable[psutil.Process]]) -> None:
        self.bytes = 0
        self._find = find
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def mib(self) -> int:
        return self.bytes // MIB

    def _look(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            self.bytes = max(self.bytes, *(p for item in self._find() for p in _peaks(item)), 0)


def _peaks(process: psutil.Process) -> Iterator[int]:
    """Yields the process's own peak of resident memory, if it still runs."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                yield int(line.split()[1]) * 1024
