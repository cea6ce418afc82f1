"""What a history needs of a simulated instance, whatever its kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from simulation.processes import Processes
from simulation.workload.client import Environment
from sleeper.instance import Instance


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A process of the instance itself, which is started again whenever it ends."""

    name: str
    run: Callable[[], None]


class SimulatedInstance(Environment, Protocol):
    """The instance of a history, and what its clients use beside it."""

    @property
    def processes(self) -> Processes:
        """The processes that the history has started."""

    @property
    def failures(self) -> int:
        """How often the machine has started again, after which checks open the instance again."""

    def create(self, values: Mapping[str, str]) -> None:
        """Creates the instance with some properties."""

    def open(self) -> Instance:
        """Opens the instance for the calling process, whose calls meet faults."""

    def open_to_check(self) -> Instance:
        """Opens the instance for checks, without faults."""

    def background(self, random: Random) -> list[BackgroundProcess]:
        """Returns the processes that do the instance's work."""

    def set_idle_seconds(self, seconds: float) -> None:
        """Sets how long processes wait when they have no work."""

    def stop_all(self) -> None:
        """Ends all processes, and lets checks open the instance again."""

    def list_data(self) -> list[str]:
        """Returns the paths of all data files, key files and sidecars, in order."""

    def read_data(self, path: str) -> bytes | None:
        """Returns the bytes of one, None if it does not exist."""

    def write_data(self, path: str, content: bytes) -> None:
        """Changes the bytes of one that exists. Readers that have it open keep the old ones."""

    def remove(self) -> None:
        """Removes everything."""
