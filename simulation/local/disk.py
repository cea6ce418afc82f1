"""The disk of the machine of a local instance, in a world.

Each operation of SQLite and of files may meet a fault: its process dies in the middle of a
transaction, the disk is full or refuses a synchronisation, or the power of the machine fails. Then
all processes die, and the folder is what was synchronised, and perhaps more.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from simulation.calls import Call, Fault
from simulation.disk import Disk, install_disk, install_waits
from simulation.processes import Processes
from simulation.world import World
from sleeper.storage import disk as storage

T = TypeVar("T")

_OUTSIDE = "outside"


class MachineDisk:
    """Implements `simulation.disk.DiskHooks`. `failures` counts the failures of power."""

    def __init__(self, world: World, processes: Processes, folder: Path) -> None:
        self.failures = 0
        self._world = world
        self._processes = processes
        self._folder = str(folder)
        self._random = Random(f"{world.seed} disk")
        self._disk: Disk = install_disk(folder, self)
        self._restore_waits = install_waits(self)
        threads: Any = storage
        threads._sync_threads = InlineExecutor
        world.on_death.append(self._disk.end)

    def process(self) -> Hashable:
        """Returns the process of the calling thread. A check has none, whoever runs it."""
        scheduler = self._world.scheduler
        thread = scheduler.find_current()
        return _OUTSIDE if thread is None or scheduler.is_exclusive() else thread.process

    def before(self, operation: str, path: str) -> Fault | None:
        """Returns the fault of an operation. Killed if the process is dead, or dies now."""
        call = Call("disk", operation, path.removeprefix(self._folder))
        return self._world.operate(call, self._lose_power)

    def sleep(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self._world.scheduler.sleep(seconds)

    def random(self, count: int) -> bytes:
        """Returns random bytes of the seed."""
        return self._random.randbytes(count)

    def now_ms(self) -> int:
        """Returns the time of the machine's clock."""
        thread = self._world.scheduler.find_current()
        skew = 0.0 if thread is None else thread.process.machine.skew_seconds
        return int((self._world.scheduler.now + skew) * 1000)

    def uninstall(self) -> None:
        """Gives the folder back to the system's disk."""
        self._restore_waits()
        self._disk.uninstall()

    def _lose_power(self) -> None:
        for process in list(self._processes.processes.values()):
            if not process.is_dead:
                self._world.scheduler.kill(process)
        try:
            self._disk.lose_power(self._random)
        except BaseException as error:
            # The product would see a failed operation.
            self._world.report(self._world.scheduler.current, error)
            raise
        self.failures += 1


class InlineExecutor:
    """Runs each call when it is submitted."""

    def submit(self, call: Callable[..., T], *arguments: object) -> "Future[T]":
        """See `concurrent.futures.Executor.submit`."""
        future: Future[T] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
