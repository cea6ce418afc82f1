"""The local instance of a world: its folder, and how processes and checks open it."""

import os
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from simulation.instances import BackgroundProcess
from simulation.local.disk import MachineDisk
from simulation.local.ports import with_simulated_ports
from simulation.processes import Processes
from simulation.surroundings import folder_of, remove_folder
from simulation.systems.receiver import EXPORTER
from simulation.world import World
from sleeper.errors import UnavailableError
from sleeper.export_queue import queue_worker, worker_process
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.runs import task
from sleeper.tables import TableId
from sleeper.workers import runner, worker

_HEARTBEAT_SECONDS = task.PERIOD_SECONDS


class LocalInstance:
    """The folder of an instance on the one machine of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes = Processes(world)
        self.base = folder_of(os.getpid())
        remove_folder(os.getpid())
        self.base.mkdir()
        world.trace.folder = str(self.base)
        self.folder = self.base / "instance"
        tempfile.tempdir = str(self.base)
        self._disk: MachineDisk | None = None
        self._stops = 0
        self._writable: dict[Path, sqlite3.Connection] = {}

    def create(self, values: Mapping[str, str]) -> None:
        """Creates the instance."""
        create_local_instance(self.folder, "simulated", values)
        self._disk = MachineDisk(self.world, self.processes, self.folder)

    def open(self) -> Instance:
        """Opens the instance for the calling process."""
        while True:
            with suppress(UnavailableError):
                return with_simulated_ports(open_local_instance(self.folder), self.world)
            self.world.scheduler.sleep(1.0)

    @property
    def failures(self) -> int:
        """How often the machine has started again, after which checks open the instance again."""
        return self._stops + (0 if self._disk is None else self._disk.failures)

    def stop_all(self) -> None:
        """Ends all processes."""
        self._stops += 1
        self.processes.kill_all()

    def list_data(self) -> list[str]:
        """Returns paths below the folder."""
        found = self.folder.glob("*/data/**/*")
        return sorted(str(each.relative_to(self.folder)) for each in found if each.is_file())

    def read_data(self, path: str) -> bytes | None:
        """Returns the bytes of a file."""
        file = self.folder / path
        return file.read_bytes() if file.exists() else None

    def write_data(self, path: str, content: bytes) -> None:
        """Replaces a file, durably."""
        file = self.folder / path
        changed = file.with_name("changed")
        with changed.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        changed.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def open_to_check(self) -> Instance:
        """Opens the instance for checks, without faults and without changes."""
        self._writable.clear()
        for name in ("instance.db", "export-queues.db", "holds.db"):
            self._keep_writable(self.folder / name)
        instance = open_local_instance(self.folder, read_only=True)

        def state(table_id: TableId) -> Any:
            for name in ("export-queues.db", "holds.db", f"{table_id}/state.db"):
                self._keep_writable(self.folder / name)
            return instance.tables.state(table_id)

        return replace(instance, tables=replace(instance.tables, state=state))

    def _keep_writable(self, path: Path) -> None:
        """Opens a database before a reader does.

        SQLite maps the index of a log once for all connections of a process of the system, and if
        the first one is read-only, no simulated process can write.
        """
        if path not in self._writable and path.exists():
            connection = sqlite3.connect(path)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            self._writable[path] = connection

    def put_source(self, name: str, content: bytes) -> str:
        """Stores a file to be ingested, and returns its path."""
        path = self.base / "sources" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return str(path)

    def destination(self, name: str) -> str:
        """Returns a folder beside the instance's."""
        return str(self.base / name)

    @property
    def exporter(self) -> str:
        """The name of the module and the class."""
        return EXPORTER

    @property
    def machine_folder(self) -> Path:
        """The folder in which the instance's is."""
        return self.base

    def background(self, random: Random) -> list[BackgroundProcess]:
        """Returns the process of `sleeper run`, which starts workers."""
        workers = random.choice((1, 2, 3))

        def run() -> None:
            instance = self.open()
            try:
                runner.run_instance(instance, workers=workers)
            finally:
                instance.close()

        return [BackgroundProcess("runner", run)]

    def set_idle_seconds(self, seconds: float) -> None:
        """Sets the pauses of the loops of the runner and its workers, and between heartbeats."""
        modules: Any = (runner, worker, worker_process, queue_worker)
        modules[0]._TICK_SECONDS = modules[1]._IDLE_WAIT_SECONDS = seconds
        modules[2]._POLL_SECONDS = modules[3]._LOOK_SECONDS = seconds
        # A local instance finds a lost task by its process.
        task.PERIOD_SECONDS = max(_HEARTBEAT_SECONDS, seconds)

    def remove(self) -> None:
        """Removes the folder."""
        if self._disk is not None:
            self._disk.uninstall()
        remove_folder(os.getpid())
