"""A simulated disk, and its installation in this process."""

from collections.abc import Hashable
from pathlib import Path
from random import Random

from simulation.disk.files import FileDisk
from simulation.disk.hooks import DiskHooks
from simulation.disk.image import Image
from simulation.disk.sqlite import SqliteDisk


class Disk:
    """The disk of a folder. One at most is installed at a time."""

    def __init__(self, folder: Path, hooks: DiskHooks) -> None:
        self._image = Image(folder)
        self._sqlite = SqliteDisk(self._image, hooks)
        self._files = FileDisk(self._image, hooks)

    def install(self) -> None:
        """Redirects SQLite and Python's functions to the disk."""
        self._sqlite.activate()
        self._files.activate()

    def uninstall(self) -> None:
        """Restores SQLite and the functions, and deletes what is kept outside the folder."""
        self._files.deactivate()
        self._sqlite.end_all()
        self._sqlite.deactivate()
        self._image.close()
        self._raise_defects()

    def end(self, process: Hashable) -> None:
        """Ends a process: its locks are released, and its open databases refuse operations."""
        self._sqlite.end(process)
        self._files.end(process)

    def lose_power(self, random: Random) -> None:
        """Ends all processes, and leaves of the folder what was synchronised, and perhaps more."""
        self._raise_defects()
        self._sqlite.end_all()
        self._files.lose_power(lambda: self._image.lose_power(random))

    def _raise_defects(self) -> None:
        """Raises an error of the simulation itself, which C code could not propagate."""
        if self._sqlite.errors:
            raise self._sqlite.errors[0]


def install_disk(folder: Path, hooks: DiskHooks) -> Disk:
    """Returns the disk of an existing folder, on which programs work from now on."""
    disk = Disk(folder, hooks)
    disk.install()
    return disk
