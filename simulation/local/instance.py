"""The local instance of a world: its folder, and how processes and checks open it."""

import os
import tempfile
from contextlib import suppress
from typing import Any

from simulation.local.ports import with_simulated_ports
from simulation.local.processes import Machine
from simulation.surroundings import folder_of, remove_folder
from simulation.world import World
from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance


class LocalInstance:
    """The folder of an instance on the one machine of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = Machine(world)
        self.base = folder_of(os.getpid())
        remove_folder(os.getpid())
        self.base.mkdir()
        world.trace.folder = str(self.base)
        self.folder = self.base / "instance"
        tempfile.tempdir = str(self.base)

    def create(self, values: dict[str, str]) -> None:
        """Creates the instance."""
        create_local_instance(self.folder, "simulated", values)

    def open(self, _where: Any = None) -> Instance:
        """Opens the instance for the calling process."""
        while True:
            with suppress(UnavailableError):
                return with_simulated_ports(open_local_instance(self.folder), self.world)
            self.world.scheduler.sleep(1.0)

    def open_to_check(self) -> Instance:
        """Opens the instance for checks, without faults.

        It is not read-only: SQLite would share that with all connections of this process of the
        system, so processes of the history could not write any more.
        """
        return open_local_instance(self.folder)

    def put_source(self, name: str, content: bytes) -> str:
        """Stores a file to be ingested, and returns its path."""
        path = self.base / "sources" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return str(path)

    def remove(self) -> None:
        """Removes the folder."""
        remove_folder(os.getpid())
