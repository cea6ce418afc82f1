"""Processes of a history: identities, child processes, and waits for locks.

`install` replaces these in the product's modules before others import them. Everything else of the
product is as it is.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simulation.scheduling.scheduler import Machine, Process, Thread
from simulation.world import World
from sleeper.errors import SleeperError

_KILLED_STATUS = -9


class Processes:
    """The processes of a history.

    `make_machine` makes the machine of each by its name; otherwise all are on that of the first.
    """

    def __init__(self, world: World, make_machine: Callable[[str], Machine] | None = None) -> None:
        self.world = world
        self._make_machine = make_machine
        self.processes: dict[str, Process] = {}

    def name_of_current(self) -> str:
        """Returns the identity of the calling thread's process."""
        thread = self.world.scheduler.find_current()
        return f"{thread.process.name if thread is not None else 'outside'}@1"

    def is_alive(self, identity: str) -> bool:
        """Returns whether the process of that identity runs."""
        process = self.processes.get(identity.partition("@")[0])
        return process is not None and not process.is_dead and bool(process.threads)

    def start(self, name: str, action: Callable[[], object]) -> tuple[Process, Thread]:
        """Starts a process of a fresh name."""
        number = sum(each.rstrip("0123456789") == name for each in self.processes) + 1
        make = self._make_machine
        machine = self._current().machine if make is None else make(name)
        process = Process(f"{name}{number}", machine)
        self.processes[process.name] = process
        return process, self.world.scheduler.spawn(process, "main", action)

    def kill_all(self) -> None:
        """Ends all processes."""
        for process in list(self.processes.values()):
            if not process.is_dead:
                self.world.kill(process)

    def _current(self) -> Process:
        return self.world.scheduler.current.process


class SimulatedPopen:
    """A child process of a module: implements what `sleeper.workers.pool` uses of Popen."""

    def __init__(self, processes: Processes, name: str, action: Callable[[Any], object]) -> None:
        import threading

        self._processes = processes
        self._stop = threading.Event()
        self.stdin = SimpleNamespace(close=self._stop.set)
        self.stdout = None
        self._process, self._main = processes.start(name, lambda: action(self._stop))

    @property
    def returncode(self) -> int | None:
        """The exit status, None while it runs."""
        if self._process.is_dead:
            return _KILLED_STATUS
        return 0 if self._main.is_done else None

    def poll(self) -> int | None:
        """See `subprocess.Popen.poll`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen.wait`."""
        if not self._processes.world.scheduler.join(self._main, timeout):
            raise subprocess.TimeoutExpired("simulated process", timeout or 0.0)
        return self.returncode or 0

    def terminate(self) -> None:
        """Ends the process. It has no handler of signals, so this kills it."""
        self.kill()

    def kill(self) -> None:
        """Ends the process at its next call."""
        if not self._main.is_done:
            self._processes.world.kill(self._process)


def install(open_instance: Callable[[str], Any]) -> "Installation":
    """Replaces what the product knows of processes. Returns what a world attaches to."""
    installation = Installation()
    identities: Any = import_module("sleeper.jobs.process")
    _rebind(identities.this_process, lambda: installation.processes.name_of_current())
    _rebind(identities.is_alive, lambda name: installation.processes.is_alive(name))
    pool: Any = import_module("sleeper.workers.pool")
    pool._start_worker = installation.start_child
    for module in ("sleeper.workers.local_worker", "sleeper.export_queue.worker_process"):
        child: Any = import_module(module)
        child.open_instance = open_instance
    streams: Any = import_module("sleeper.query.sql.stream")
    # An event loop would wait outside of the scheduler.
    streams._next = lambda stream, limit: limit.check() or next(iter(stream), None)
    worker: Any = sys.modules["sleeper.workers.local_worker"]
    worker.run_worker_process = lambda each: each.run()
    worker._write_report = lambda _report: None
    bulk_imports: Any = import_module("sleeper.bulk_import.run")
    # Loads of a few rows split a table before, as large ones do.
    bulk_imports._ROWS_PER_LEAF_MIN = 4
    _name_jobs(installation)
    holds: Any = import_module("sleeper.query.hold")
    # Owners of holds are in the log, and so in the digests of its snapshots.
    holds.os = SimpleNamespace(getpid=lambda: 1)
    _install_digests(installation)
    return installation


def _rebind(function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Gives all modules of the product that name the function another one."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("sleeper.") and vars(module).get(function.__name__) is function:
            vars(module)[function.__name__] = other


def _name_jobs(installation: "Installation") -> None:
    """Counts faults in the job of a message by its queue, not by the worker that runs it."""
    workers: Any = import_module("sleeper.workers.worker")
    handle = workers.Worker._handle

    @wraps(handle)
    def named(worker: Any, name: Any, *arguments: Any) -> None:
        with installation.processes.world.operating(f"{name.value} job"):
            handle(worker, name, *arguments)

    workers.Worker._handle = named


def _install_digests(installation: "Installation") -> None:
    """Makes digests of destinations depend on no path that differs between runs."""
    records: Any = import_module("sleeper.stash.record_index")
    real = records.destination_digest

    def digest(destination: str) -> str:
        return str(real(installation.processes.world.trace.without_folder(destination)))

    for name, module in sorted(sys.modules.items()):
        if name.startswith("sleeper.stash.") and vars(module).get("destination_digest") is real:
            vars(module)["destination_digest"] = digest


class Installation:
    """What is installed, for the processes of the world that runs."""

    processes: Processes

    def start_child(self, folder: Path, module: str, _on_line: object) -> Any:
        """Starts a worker or companion, see `sleeper.workers.pool._start_worker`."""
        pool: Any = sys.modules["sleeper.workers.pool"]
        child: Any = sys.modules[module]
        name = "worker" if module.endswith("local_worker") else "exporter"

        def run(stop: Any) -> None:
            if name == "worker":
                child._run(str(folder), stop)
            else:
                instance = child.open_instance(str(folder))
                if not child.ExportWorker(instance, stop).run():
                    # As the product ends a process of which a call hangs.
                    self.processes.world.kill(self.processes.world.scheduler.current.process)
                instance.close()

        def action(stop: Any) -> None:
            # Its program ends with an error status, and the pool starts another.
            with suppress(SleeperError):
                run(stop)

        started = self.processes.world.scheduler.now
        return pool._Worker(SimulatedPopen(self.processes, name, action), started)
