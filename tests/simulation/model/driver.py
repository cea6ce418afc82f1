"""Runs random operations on a local instance, one after the other, with checks after each."""

from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from random import Random

from simulation.checks.checker import Checker
from simulation.checks.derived import check_backup
from simulation.checks.settled import check_settled
from simulation.model.batches import observed_batches
from simulation.model.journal import Journal
from simulation.model.observer import Observer, observed_trims
from simulation.systems.receiver import EXPORTER
from simulation.workload.background import work_once
from simulation.workload.client import Catalogue, Client
from simulation.workload.mixture import mix_operations
from simulation.workload.operations import core_operations
from simulation.workload.registry import choose_operation, run_operation
from sleeper.backup.place import open_place_to_read
from sleeper.backup.restore import restore
from sleeper.compaction.plan import create_table_jobs
from sleeper.garbage_collection.service import run_garbage_collection, run_orphan_collection
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.splitting.find import send_new_splits
from tests.clock import FakeClock

PROPERTIES = {
    "sleeper.queue.receives.max": "1000",
    "sleeper.compaction.queue.visibility.timeout.seconds": "2",
    "sleeper.compaction.lease.seconds": "1200",
    "sleeper.engine.threads": "1",
}
_MINUTE_MS = 60_000
_ROUNDS_MAX = 20
_WAITS_MS = (0, 1, 1_000, _MINUTE_MS, 16 * _MINUTE_MS, 61 * _MINUTE_MS)


class Driver:
    """A history of one client of a local instance in a folder.

    All operations of the core are as frequent as by default, or those of `focus` are most of the
    steps. Those of the systems need a receiver, and a clock that passes while they wait.
    """

    def __init__(self, folder: Path, seed: int, focus: Collection[str] = ()) -> None:
        self.random, self.clock = Random(seed), FakeClock()
        self.folder = folder
        self.journal = Journal()
        create_local_instance(folder / "instance", "simulated", PROPERTIES)
        (folder / "sources").mkdir()
        self.instance: Instance = open_local_instance(folder / "instance", self.clock)
        self.client = Client(
            self.instance,
            Random(seed),
            self.journal,
            Catalogue(),
            self,
            sleep=self.pass_seconds,
        )
        self.observer = Observer(self.instance, self.journal)
        self.checker = Checker(self.observer, self.random)
        self.operations = core_operations()
        if focus:
            self.operations = mix_operations(self.operations, Random(seed), focus)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.trace: list[str] = []

    def pass_seconds(self, seconds: float) -> None:
        """Moves the clock, as nothing else happens while the client waits."""
        self.clock.now_ms += round(seconds * 1000)

    def close(self) -> None:
        self.client.close()
        self.instance.close()

    def run(self, steps: int) -> None:
        """Runs operations with checks after each, and all checks at the end."""
        with observed_trims(self.observer), observed_batches(self.journal):
            for _ in range(steps):
                self.step()
            self.checker.check_all()

    def step(self) -> None:
        """Runs one operation and its checks, and lets time pass."""
        chosen = choose_operation(self.client, self.operations)
        outcome = run_operation(self.client, chosen)
        self.outcomes[chosen.name, outcome.partition(":")[0]] += 1
        self.trace.append(f"{chosen.name}: {outcome}")
        self.clock.now_ms += self.random.choice(_WAITS_MS)
        self.checker.check_step()

    def settle(self) -> None:
        """Lets the instance work without clients until it is idle, and checks the result."""
        with observed_trims(self.observer), observed_batches(self.journal):
            for _ in range(_ROUNDS_MAX):
                self.clock.now_ms += 61 * _MINUTE_MS
                refs = self.instance.tables.index.list()
                reports = [create_table_jobs(self.instance, r, True) for r in refs if r.online]
                sent = sum(send_new_splits(self.instance, r) for r in refs if r.online)
                worked = work_once(self.client)
                while work_once(self.client):
                    pass
                if not (sent or worked or any(each.did_anything for each in reports)):
                    break
            self.clock.now_ms += 20 * 24 * 60 * _MINUTE_MS
            refs = self.instance.tables.index.list()
            # The collection of a clone unpins files of its source.
            while sum(run_garbage_collection(self.instance, ref).files for ref in refs):
                pass
            for ref in refs:
                run_orphan_collection(self.instance, ref)
            self.checker.check_all()
        check_settled(self.observer, files_per_partition_max=1, are_orphans_old=True)

    def check_backups(self) -> None:
        """Restores the newest backup, and compares its tables."""
        for backup in self.journal.backups[-1:]:
            create_local_instance(self.folder / "restored", "simulated", PROPERTIES)
            restored = open_local_instance(self.folder / "restored", self.clock)
            with closing(restored):
                done = restore(restored, open_place_to_read(backup.location), backup.id)
                assert not [fault for table in done.tables for fault in table.faults]
                check_backup(restored, backup, self.observer)

    exporter = EXPORTER

    @property
    def machine_folder(self) -> Path:
        """See `simulation.workload.client.Environment`."""
        return self.folder

    def destination(self, name: str) -> str:
        """See `simulation.workload.client.Environment`."""
        return str(self.folder / name)

    def put_source(self, name: str, content: bytes) -> str:
        """See `simulation.workload.client.Environment`."""
        path = self.folder / "sources" / name
        path.write_bytes(content)
        return str(path)
