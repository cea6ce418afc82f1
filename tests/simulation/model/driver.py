"""Runs random operations on a local instance, one after the other, with checks after each."""

from collections import Counter
from pathlib import Path
from random import Random

from simulation.checks.log import check_answers, check_log, check_submissions
from simulation.checks.replay import Replica
from simulation.checks.rows import (
    check_lookups,
    check_rows,
    choose_versions,
    read_by_query,
    read_by_sql,
)
from simulation.checks.state import check_state
from simulation.model.fold import TableModel
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
        self.replicas: dict[str, Replica] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.trace: list[str] = []

    def close(self) -> None:
        self.instance.close()

    def run(self, steps: int) -> None:
        """Runs operations, with all checks after each."""
        with observed_trims(self.observer):
            for step in range(steps):
                self.step()
                if step % 10 == 9:
                    self.check_deeply()

    def step(self) -> None:
        """Runs one operation and the checks that read no rows."""
        chosen = choose_operation(self.client, list(OPERATIONS.values()))
        outcome = run_operation(self.client, chosen)
        self.outcomes[chosen.name, outcome.partition(":")[0]] += 1
        self.trace.append(f"{chosen.name}: {outcome}")
        self.clock.now_ms += self.random.choice(_WAITS_MS)
        for model in self.observer.refresh():
            self.check(model)

    def check(self, model: TableModel) -> None:
        """Checks everything of a table but its rows, and the rows of its newest version."""
        name = self.observer.names[model.id]
        check_log(model)
        check_submissions(model)
        check_answers(model, self.journal)
        check_state(self.instance.table(name), model, self.journal.pins.values())
        if self.random.random() < 0.3:
            newest = [model.number] if model.is_readable(model.number) else []
            check_rows(self.instance, name, model, newest, read_by_query)

    def check_deeply(self) -> None:
        """Checks the rows of several versions of all tables, and their replays."""
        for model in self.observer.refresh():
            name = self.observer.names[model.id]
            store = self.instance.tables.state(model.id)
            if model.id not in self.replicas:
                self.replicas[model.id] = Replica(model, store)
            self.replicas[model.id].check(model, store)
            versions = choose_versions(model, self.random)
            check_rows(self.instance, name, model, versions, read_by_query)
            check_rows(self.instance, name, model, versions[-1:], read_by_sql)
            for version in versions:
                check_lookups(self.instance, name, model, version, self.random)

    def _put_source(self, name: str, content: bytes) -> str:
        path = self.folder / "sources" / name
        path.write_bytes(content)
        return str(path)
