"""What a soak needs of an instance, and the instance in a folder."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Protocol

import pyarrow.parquet as pq

from simulation.soak.journal import Journal
from simulation.soak.processes import CLOCK_VARIABLE, Process, WrongClock
from sleeper import INSTANCE_VARIABLE
from sleeper.clock import Clock
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.retries import RETRY_VARIABLE
from tests.child_processes import VARIABLE as PYTHON_PATH
from tests.child_processes import python_path

ROOT = Path(__file__).parents[2]
MARK_VARIABLE = "SLEEPER_SOAK"
"""In the environment of each process of a soak, with the soak's folder."""
_INHERITED = ("JAVA_HOME", "SPARK_SUBMIT_OPTS")
PROPERTIES = {
    "sleeper.engine.threads": "1",
    # Innocent messages meet many faults here: they must not become dead letters.
    "sleeper.queue.receives.max": "1000",
    "sleeper.compaction.job.max.retries": "100",
    "sleeper.compaction.queue.visibility.timeout.seconds": "30",
    # The least. A commit of a run older than half of it is refused.
    "sleeper.orphan.age.days": "2",
    "sleeper.gc.period.minutes": "1",
    "sleeper.snapshot.period.minutes": "1",
    "sleeper.snapshot.transactions.min": "20",
}

Upload = tuple[str, str, str]
"""A file, a bucket and a key."""


class World(Protocol):
    """An instance, its servers and background processes."""

    folder: Path
    background: list[Process]
    servers: list[Process]

    @property
    def where(self) -> str:
        """The value of `--instance`."""

    def environment(self, clock: WrongClock) -> dict[str, str]:
        """Returns the environment of a process."""

    def open(self, clock: Clock) -> Instance:
        """Opens the instance in this process, without faults."""

    def source(self, path: Path) -> str:
        """Returns the name by which workers read a file, once it is uploaded."""

    def uploads(self, path: Path) -> tuple[Upload, ...]:
        """Returns what a client uploads so that workers can read the file."""

    def destination(self, name: str) -> str:
        """Returns where a stash or backup of that name is written."""

    def rows_of_files(self, location: str) -> list[tuple[int, str]]:
        """Returns the rows of the Parquet files at a location."""

    def set_faults(self, probability: float) -> None:
        """Sets the probability of a fault in an exchange with a server."""

    def pass_time(self) -> None:
        """Lets invisible messages return to their queues."""


def process_environment(folder: Path, where: str, clock: WrongClock) -> dict[str, str]:
    """Returns the environment of a process on the instance."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        PYTHON_PATH: python_path(ROOT),
        RETRY_VARIABLE: "10",
        INSTANCE_VARIABLE: where,
        CLOCK_VARIABLE: str(clock.path),
        MARK_VARIABLE: str(folder),
        "PYTHONUNBUFFERED": "1",
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
    }


def rows_of(paths: Sequence[Path | BytesIO]) -> list[tuple[int, str]]:
    """Returns the rows of Parquet files."""
    tables = [pq.read_table(path) for path in paths]
    pairs = [zip(t.column("k").to_pylist(), t.column("v").to_pylist(), strict=True) for t in tables]
    return [row for rows in pairs for row in rows]


@dataclass
class LocalWorld:
    """An instance in a folder. Its background work is `sleeper run`."""

    folder: Path
    where: str
    background: list[Process]
    servers: list[Process] = field(default_factory=list)

    def environment(self, clock: WrongClock) -> dict[str, str]:
        return process_environment(self.folder, self.where, clock)

    def open(self, clock: Clock) -> Instance:
        return open_local_instance(Path(self.where), clock)

    def source(self, path: Path) -> str:
        return str(path)

    def uploads(self, path: Path) -> tuple[Upload, ...]:
        del path
        return ()

    def destination(self, name: str) -> str:
        return str(self.folder / name)

    def rows_of_files(self, location: str) -> list[tuple[int, str]]:
        return rows_of(sorted(Path(location).glob("*.parquet")))

    def set_faults(self, probability: float) -> None:
        """No connection to a server exists."""

    def pass_time(self) -> None:
        """Clocks of the processes are enough."""


@contextlib.contextmanager
def local_world(
    folder: Path, clock: WrongClock, journal: Journal, _chance: Random
) -> Iterator[LocalWorld]:
    """Creates an instance in the folder."""
    where = folder / "instance"
    create_local_instance(where, "soak", PROPERTIES)
    command = [str(Path(sys.executable).with_name("sleeper")), "run", "--workers", "2"]
    environment: Mapping[str, str] = process_environment(folder, str(where), clock)
    journal.record("world", kind="local", where=str(where))
    yield LocalWorld(
        folder, str(where), [Process("run", "sleeper run", command, environment, folder)]
    )
