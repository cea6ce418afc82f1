"""A local instance on the simulated disk: power failures lose nothing that it acknowledged."""

import json
import secrets
import threading
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from simulation.calls import Fault
from simulation.disk import install_disk, install_waits
from simulation.local.disk import InlineExecutor
from sleeper.admin.tables import create_table, delete_table
from sleeper.compaction.plan import create_table_jobs
from sleeper.errors import NotFoundError, SleeperError
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    finish_deletions,
    snapshot_table,
    sweep_abandoned,
)
from sleeper.ingest.service import ingest_paths, ingest_rows, submit_ingest
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.splitting.find import send_splits
from sleeper.statestore.database import Database
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.storage import disk as files
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.simulation.disk.worlds import Countdown, Killed

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "k", "type": "IntType"}],
        "valueFields": [{"name": "v", "type": "LongType"}],
    }
)
INSTANCE = {"sleeper.engine.threads": "1", "sleeper.queue.receives.max": "1000"}
TABLE = {
    "sleeper.table.partition.splitting.threshold": "40",
    "sleeper.table.compaction.files.batch.size": "2",
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.parquet.rowgroup.rows.max": "1000",
}
Row = tuple[int, int]


@dataclass
class Machine(Countdown):
    """A machine whose processes die with the power. Their other threads end at their next call."""

    dead: set[int] = field(default_factory=set)

    def before(self, operation: str, path: str) -> Fault | None:
        if threading.get_ident() in self.dead:
            raise Killed
        if threading.current_thread() is not threading.main_thread():
            return None
        return super().before(operation, path)

    def start_again(self) -> None:
        others = threading.enumerate()
        self.dead |= {each.ident or 0 for each in others if each is not threading.main_thread()}
        self.left = -1


class History:
    """Random work of one process at a time. `rows` are those of acknowledged ingests."""

    def __init__(self, folder: Path, random: Random, machine: Machine) -> None:
        self.folder = folder
        self.random = random
        self.machine = machine
        self.clock = FakeClock()
        self.rows: dict[str, Counter[Row]] = {}
        self.pending: dict[str, tuple[str, list[Row], Path | None]] = {}
        self.counted = 0

    def open(self) -> None:
        self.instance = open_local_instance(self.folder, self.clock)

    def work(self) -> None:
        actions = [
            *([self.ingest] * 4),
            *([self.submit] * 2),
            *([self.run_jobs] * 3),
            self.maintain,
            self.create,
            self.delete,
        ]
        self.random.choice(actions)()

    def work_until_killed(self) -> None:
        try:
            while True:
                self.work()
        except (Killed, SleeperError):
            # SQLite gives the process an error when it is dead.
            if self.machine.left:
                raise

    def pick(self) -> str:
        return self.random.choice(sorted(self.rows))

    def create(self) -> None:
        if len(self.rows) < 3:
            name = f"t{self.counted}"
            self.counted += 1
            create_table(self.instance, name, SCHEMA, TABLE, [0])
            self.rows[name] = Counter()

    def delete(self) -> None:
        if len(self.rows) > 1:
            name = self.pick()
            del self.rows[name]
            self.pending = {i: each for i, each in self.pending.items() if each[0] != name}
            delete_table(self.instance, name, now=self.random.random() < 0.5)

    def make_rows(self) -> list[Row]:
        first = self.counted
        self.counted += self.random.randrange(1, 20)
        return [(self.random.randrange(-50, 50), n) for n in range(first, self.counted)]

    def ingest(self) -> None:
        name, rows, job_id = self.pick(), self.make_rows(), self.new_id()
        self.pending[job_id] = name, rows, None
        self.finish(job_id)

    def submit(self) -> None:
        name, rows, job_id = self.pick(), self.make_rows(), self.new_id()
        path = self.folder.parent.with_name(f"{job_id}.csv")  # on another machine's disk
        path.write_text("k,v\n" + "".join(f"{k},{v}\n" for k, v in rows))
        self.pending[job_id] = name, rows, path
        submit_ingest(self.instance, name, [str(path)], job_id)

    def finish(self, job_id: str) -> None:
        name, rows, path = self.pending[job_id]
        if path is None:
            ingest_rows(self.instance, name, table(rows).to_batches(), job_id)
        else:
            ingest_paths(self.instance, name, [str(path)], job_id)
        self.rows[name].update(rows)
        del self.pending[job_id]

    def new_id(self) -> str:
        return self.random.randbytes(8).hex()

    def run_jobs(self) -> None:
        name = self.pick()
        ref = self.instance.tables.index.find(name)
        send_splits(self.instance, ref, {}, 0)
        create_table_jobs(self.instance, ref, full=self.random.random() < 0.3)
        worker = Worker(self.instance, "task", threading.Event())
        for _ in range(self.random.randrange(4)):
            worker.run_one()

    def maintain(self) -> None:
        self.clock.pass_minutes(self.random.choice((1, 70, 24 * 60 * 3)))
        name = self.pick()
        snapshot_table(self.instance, self.instance.tables.index.find(name), always=True)
        collect_table(self.instance, name)
        collect_table_orphans(self.instance, name)
        finish_deletions(self.instance)
        sweep_abandoned(self.instance)

    def check(self) -> None:
        """Checks that acknowledged rows are in the tables, and submitted ones once at most."""
        for name, rows in sorted(self.rows.items()):
            actual = self.queried(name)
            missing = rows - actual
            assert not missing, (name, missing)
            more = actual - rows
            for table_name, pending, _ in self.pending.values():
                if table_name == name and pending[0] in more:
                    more -= Counter(pending)
                    assert actual & Counter(pending) == Counter(pending)
            assert not more, (name, more)

    def queried(self, name: str) -> Counter[Row]:
        with open_query(self.instance, name, Query()) as result:
            return Counter((r["k"], r["v"]) for b in result for r in b.to_pylist())

    def settle(self) -> None:
        """Finishes everything, and checks that nothing is lost, twice or left over."""
        self.clock.pass_minutes(100)
        worker = Worker(self.instance, "task", threading.Event())
        for name in sorted(self.rows):
            create_table_jobs(self.instance, self.instance.tables.index.find(name), full=True)
        for _ in range(100):
            if not worker.run_one():
                break
        for job_id in sorted(self.pending):
            self.finish(job_id)
        for name, rows in self.rows.items():
            assert self.queried(name) == rows
            self.check_tree(name)
        for queue in QueueName:
            assert not self.instance.jobs.dead_letters(queue).list()

    def check_tree(self, name: str) -> None:
        self.clock.pass_minutes(24 * 60 * 20)
        ref = self.instance.tables.index.find(name)
        self.instance.tables.state(ref.id).commit(AcceptTime(self.clock.now_ms))
        collect_table(self.instance, name)
        collect_table_orphans(self.instance, name)
        finish_deletions(self.instance)
        sweep_abandoned(self.instance)
        with self.instance.tables.state(ref.id).reading() as state:
            named = {f.path + s for f in state.files.all() for s in ("", *f.sidecars)}
        data = self.folder / ref.id / "data"
        left = {p.relative_to(self.folder).as_posix() for p in data.rglob("*") if p.is_file()}
        assert left == named


def table(rows: list[Row]) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})


def run(folder: Path, seed: int, failures: int) -> None:
    random = Random(seed)
    machine = Machine(random)
    disk = install_disk(folder, machine)
    restore = install_waits(machine)
    history = History(folder / "instance", random, machine)
    try:
        create_local_instance(history.folder, "simulated", INSTANCE)
        history.open()
        history.create()
        for _ in range(failures):
            machine.left = random.randrange(1500)
            names = set(history.rows)
            history.work_until_killed()
            disk.lose_power(random)
            machine.start_again()
            history.open()
            for name in names - {*history.rows}:
                with suppress(NotFoundError):
                    delete_table(history.instance, name, now=True)
            history.check()
        history.settle()
        history.instance.close()
    finally:
        machine.start_again()
        restore()
        disk.uninstall()


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Random(1)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=source.randbytes(16), version=4))
    monkeypatch.setattr(secrets, "token_hex", lambda count: source.randbytes(count).hex())
    monkeypatch.setattr(files, "_sync_threads", InlineExecutor)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # those of dead processes


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_rows_survive_power_failures(folder: Path, seed: int) -> None:
    run(folder, seed, 3)


def test_a_log_that_is_not_synchronised_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database.__init__, "__defaults__", (False, None, False))
    with pytest.raises((AssertionError, SleeperError)):
        run(folder, 1, 5)
