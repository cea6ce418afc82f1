"""Runs random operations on a local instance, one after the other, with checks after each."""

from collections import Counter
from pathlib import Path
from random import Random

from simulation.checks.checker import Checker
from simulation.model.journal import Journal
from simulation.model.observer import Observer, observed_trims
from simulation.workload.client import Catalogue, Client
from simulation.workload.operations import OPERATIONS
from simulation.workload.registry import choose_operation, run_operation
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock

PROPERTIES = {
    "sleeper.queue.receives.max": "1000",
    "sleeper.compaction.queue.visibility.timeout.seconds": "2",
    "sleeper.compaction.lease.seconds": "1200",
    "sleeper.engine.threads": "1",
}
_MINUTE_MS = 60_000
_WAITS_MS = (0, 1, 1_000, _MINUTE_MS, 16 * _MINUTE_MS, 61 * _MINUTE_MS)


class Driver:
    """A history of one client of a local instance in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.clock = Random(seed), FakeClock()
        self.folder = folder
        self.journal = Journal()
        create_local_instance(folder / "instance", "simulated", PROPERTIES)
        (folder / "sources").mkdir()
        self.instance: Instance = open_local_instance(folder / "instance", self.clock)
        self.client = Client(
            self.instance, Random(seed), self.journal, Catalogue(), self._put_source
        )
        self.observer = Observer(self.instance, self.journal)
        self.checker = Checker(self.observer, self.random)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.trace: list[str] = []

    def close(self) -> None:
        self.client.close()
        self.instance.close()

    def run(self, steps: int) -> None:
        """Runs operations with checks after each, and all checks at the end."""
        with observed_trims(self.observer):
            for _ in range(steps):
                self.step()
            self.checker.check_all()

    def step(self) -> None:
        """Runs one operation and its checks, and lets time pass."""
        chosen = choose_operation(self.client, list(OPERATIONS.values()))
        outcome = run_operation(self.client, chosen)
        self.outcomes[chosen.name, outcome.partition(":")[0]] += 1
        self.trace.append(f"{chosen.name}: {outcome}")
        self.clock.now_ms += self.random.choice(_WAITS_MS)
        self.checker.check_step()

    def _put_source(self, name: str, content: bytes) -> str:
        path = self.folder / "sources" / name
        path.write_bytes(content)
        return str(path)
