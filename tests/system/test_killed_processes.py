"""Processes of a local instance, killed at random: no row is lost or duplicated.

The seed is printed; `SLEEPER_TEST_SEED` repeats its choices, though not the machine's timing.
`SLEEPER_KILL_SECONDS` makes it longer.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.compaction.plan import create_table_jobs
from sleeper.garbage_collection.service import collect_table, collect_table_orphans
from sleeper.ingest.service import submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.workers.runner import run_instance
from sleeper.workers.worker import Worker
from tests.seeds import choose_seed

SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
ROWS_PER_JOB = 4_000
DAY_MS = 24 * 3600 * 1000
RUNNER = """
import sys
from sleeper.opening import open_instance
from sleeper.workers.runner import run_instance
run_instance(open_instance(sys.argv[1]), workers=2)
"""
INGEST = """
import sys
from sleeper.opening import open_instance
from sleeper.ingest.service import ingest_paths
ingest_paths(open_instance(sys.argv[1]), "rows", [sys.argv[3]], sys.argv[2])
"""
SHAPE = """
import sys
import time
from sleeper.garbage_collection.service import collect_table
from sleeper.opening import open_instance
from sleeper.compaction.plan import compact_table
from sleeper.splitting.service import split_table
instance = open_instance(sys.argv[1])
while True:
    split_table(instance, "rows")
    compact_table(instance, "rows")
    collect_table(instance, "rows")
    time.sleep(0.05)
"""


class KillingRun:
    """Starts processes on the instance, and kills some of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.submitted: dict[str, Path] = {}
        self.ingests: list[tuple[subprocess.Popen[bytes], str]] = []
        self.runner: subprocess.Popen[bytes] | None = None
        self.shaper: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()
        self.log = (folder / "processes.log").open("wb")

    def start(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, str(self.folder / "instance"), *arguments]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def new_job(self) -> tuple[str, Path]:
        number = len(self.submitted)
        path = self.folder / f"source-{number}.parquet"
        keys = [self.random.randrange(-(10**6), 10**6) for _ in range(ROWS_PER_JOB)]
        rows = {"k": keys, "v": [f"{number}-{place}" for place in range(ROWS_PER_JOB)]}
        pq.write_table(pa.table(rows), path)
        self.submitted[f"job-{number}"] = path
        return f"job-{number}", path

    def step(self, instance: Instance) -> None:
        if self.runner is None or self.runner.poll() is not None:
            self.runner = self.start(RUNNER)
        if self.shaper is None or self.shaper.poll() is not None:
            self.shaper = self.start(SHAPE)
        job_id, path = self.new_job()
        if self.random.random() < 0.4:
            self.ingests.append((self.start(INGEST, job_id, str(path)), job_id))
        else:
            submit_ingest(instance, "rows", [str(path)], job_id)
        time.sleep(self.random.uniform(0.05, 1.2))
        victim = self.random.choice(["worker", "worker", "runner", "ingest", "shaper"])
        self.kill(victim)

    def kill(self, victim: str) -> None:
        processes: dict[str, list[psutil.Process]] = {
            "worker": self.workers(),
            "runner": _living(self.runner),
            "shaper": _living(self.shaper),
            "ingest": [result for process, _ in self.ingests for result in _living(process)],
        }
        if processes[victim]:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.random.choice(processes[victim]).kill()
                self.kills[victim] += 1

    def workers(self) -> list[psutil.Process]:
        """Processes that the runner started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child for runner in _living(self.runner) for child in runner.children()]
        return []

    def stop(self, instance: Instance) -> None:
        """Kills the running processes and sends their unfinished ingests again."""
        workers = self.workers()
        for process in [self.runner, self.shaper, *(p for p, _ in self.ingests)]:
            if process is not None:
                process.kill()
                process.wait()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        self.log.close()
        for _, job_id in self.ingests:
            submit_ingest(instance, "rows", [str(self.submitted[job_id])], job_id)


def _living(process: subprocess.Popen[bytes] | None) -> list[psutil.Process]:
    if process is None or process.poll() is not None:
        return []
    with contextlib.suppress(psutil.NoSuchProcess):
        return [psutil.Process(process.pid)]
    return []


def count_rows(instance: Instance) -> Counter[tuple[int, str]]:
    """The rows that references stand for, read without the engine."""
    counts: Counter[tuple[int, str]] = Counter()
    with instance.table("rows").state.reading() as state:
        regions = {p.id: p.region for p in state.partitions.all()}
        for reference in state.files.references():
            table = pq.read_table(instance.storage.root.url_of(reference.path))
            region = regions[reference.partition_id]
            rows = zip(*(table.column(name).to_pylist() for name in "kv"), strict=True)
            counts.update(row for row in rows if region.contains(row[:1]))
    return counts


def test_killed_processes_lose_no_rows_and_leave_no_orphans(tmp_path: Path) -> None:
    seed = choose_seed()
    folder = tmp_path / "instance"
    # Innocent messages meet many deaths here: they must not be taken for poison.
    properties = {"sleeper.queue.receives.max": "100", "sleeper.engine.threads": "1"}
    create_local_instance(folder, "killed", properties)
    instance = open_local_instance(folder)
    create_table(
        instance,
        "rows",
        SCHEMA,
        {
            "sleeper.table.partition.splitting.threshold": "15000",
            "sleeper.table.gc.delay.minutes": "0",
            "sleeper.table.compaction.files.batch.size": "4",
        },
    )
    run = KillingRun(tmp_path, seed)
    deadline = time.monotonic() + float(os.environ.get("SLEEPER_KILL_SECONDS", "12"))
    try:
        while time.monotonic() < deadline:
            run.step(instance)
    finally:
        run.stop(instance)
    print(f"killed: {dict(run.kills)}; jobs: {len(run.submitted)}")
    status = run_instance(instance, until_idle=True, workers=2)
    assert status.problems == ()
    expected: Counter[tuple[int, str]] = Counter()
    for path in run.submitted.values():
        table = pq.read_table(path)
        expected.update(zip(*(table.column(n).to_pylist() for n in "kv"), strict=True))
    assert count_rows(instance) == expected
    check_nothing_waits(instance)
    assert count_rows(instance) == expected
    instance.close()


def check_nothing_waits(instance: Instance) -> None:
    """No lock, no dead letter, no open run; and once they are old, no orphan."""
    ref = instance.tables.index.find("rows")
    for job in instance.jobs.tracker.recent(JobKind.INGEST, limit=10_000):
        assert job.state is JobState.COMMITTED, job
    assert all(not instance.jobs.dead_letters(name).list() for name in QueueName)
    assert not any(task.running for task in instance.jobs.tasks.recent(limit=10_000))
    later = open_local_instance(Path(instance.where), lambda: system_clock() + 14 * DAY_MS)
    # Here no process is left that could hold anything, and every lease has run out.
    create_table_jobs(later, ref, full=True)
    worker = Worker(later, "task", threading.Event())
    while worker.run_one():
        pass
    later.close()
    with instance.table("rows").state.reading() as state:
        assert state.jobs.count() == 0
        assert all(len(files) == 1 for _, files in state.files.leaf_references())
    later = open_local_instance(Path(instance.where), lambda: system_clock() + 29 * DAY_MS)
    collect_table(later, "rows")
    collect_table_orphans(later, "rows")
    with later.table("rows").state.reading() as state:
        names = {f.path + s for f in state.files.all() for s in ("", *f.sidecars)}
    objects = {o.path for o in later.storage.root.list_objects(ref.id) if "/data/" in o.path}
    assert objects == names
    later.close()
