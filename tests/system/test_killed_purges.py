"""Deletes, purges and compactions of a local instance, killed at random.

No row is lost, none is resurrected, and in the end no object has a deleted one. The seed is
printed; `SLEEPER_TEST_SEED` repeats its choices, though not the machine's timing.
`SLEEPER_KILL_SECONDS` makes it longer.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.deletion.keys import delete_rows
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import Range, Region
from sleeper.purging.service import purge_table
from sleeper.query.request import Query
from sleeper.query.service import open_query
from tests.remnants import find_remnants
from tests.seeds import choose_seed

SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
DAY_MS = 24 * 3600 * 1000
KEYS = 1_000
ROWS_PER_INGEST = 300
DELETE = """
import sys
from sleeper.deletion.keys import delete_rows
from sleeper.opening import open_instance
from sleeper.partitions.region import Range, Region
low, high = int(sys.argv[3]), int(sys.argv[4])
delete_rows(open_instance(sys.argv[1]), "rows", [Region((Range(low, high),))], sys.argv[2])
"""
PURGE = """
import sys
import time
from sleeper.opening import open_instance
from sleeper.purging.service import purge_table
instance = open_instance(sys.argv[1])
while True:
    purge_table(instance, "rows")
    time.sleep(0.05)
"""
SHAPE = """
import sys
import time
from sleeper.compaction.plan import compact_table
from sleeper.opening import open_instance
from sleeper.splitting.service import split_table
instance = open_instance(sys.argv[1])
while True:
    split_table(instance, "rows")
    compact_table(instance, "rows")
    time.sleep(0.05)
"""


class KilledRun:
    """A table that this process writes to, while others that it kills change its files.

    `rows` has the rows that must be seen, with their values; `deleted` the values of the others.
    """

    def __init__(self, folder: Path, instance: Instance, seed: int) -> None:
        self.folder = folder
        self.instance = instance
        self.random = random.Random(seed)
        self.rows: list[tuple[int, str]] = []
        self.deleted: set[str] = set()
        self.kills: Counter[str] = Counter()
        self.count = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (folder / "processes.log").open("wb")

    def start(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, str(self.folder / "instance"), *arguments]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def step(self) -> None:
        for name, code in (("purge", PURGE), ("other purge", PURGE), ("shape", SHAPE)):
            if name not in self.processes or self.processes[name].poll() is not None:
                self.processes[name] = self.start(code)
        self.ingest()
        self.delete()
        victim = self.random.choice([*self.processes])
        self.processes[victim].kill()
        self.processes[victim].wait()
        self.kills[victim] += 1

    def ingest(self) -> None:
        self.count += 1
        keys = [self.random.randrange(KEYS) for _ in range(ROWS_PER_INGEST)]
        values = [f"value-{self.count}-{place}-" for place in range(ROWS_PER_INGEST)]
        batch = pa.record_batch({"k": keys, "v": values})
        ingest_rows(self.instance, "rows", [batch], f"job-{self.count}")
        self.rows += zip(keys, values, strict=True)

    def delete(self) -> None:
        """Kills a delete, and repeats it: whether it was done before makes no difference."""
        low = self.random.randrange(KEYS)
        high = low + self.random.choice([1, 10, 200])
        delete_id = f"delete-{self.count}"
        process = self.start(DELETE, delete_id, str(low), str(high))
        deadline = time.monotonic() + self.random.uniform(0.2, 1.5)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kills["delete"] += process.poll() is None
        process.kill()
        process.wait()
        delete_rows(self.instance, "rows", [Region((Range(low, high),))], delete_id)
        self.deleted |= {value for key, value in self.rows if low <= key < high}
        self.rows = [row for row in self.rows if not low <= row[0] < high]

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.log.close()

    def seen(self) -> list[tuple[int, str]]:
        with open_query(self.instance, "rows", Query()) as result:
            return [(row["k"], row["v"]) for batch in result for row in batch.to_pylist()]


@pytest.mark.timeout(300)
def test_killed_deletes_and_purges_lose_no_row_and_resurrect_none(tmp_path: Path) -> None:
    seed = choose_seed()
    properties = {
        "sleeper.queue.receives.max": "100",
        "sleeper.compaction.job.max.retries": "100",
        "sleeper.compaction.queue.visibility.timeout.seconds": "30",
        "sleeper.engine.threads": "1",
    }
    folder = tmp_path / "instance"
    create_local_instance(folder, "killed", properties)
    instance = open_local_instance(folder)
    settings = {
        "sleeper.table.partition.splitting.threshold": "2000",
        "sleeper.table.gc.delay.minutes": "0",
        "sleeper.table.compaction.files.batch.size": "3",
        "sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf",
    }
    create_table(instance, "rows", SCHEMA, settings)
    run = KilledRun(tmp_path, instance, seed)
    deadline = time.monotonic() + float(os.environ.get("SLEEPER_KILL_SECONDS", "6"))
    try:
        while time.monotonic() < deadline:
            run.step()
            assert sorted(run.seen()) == sorted(run.rows)
    finally:
        run.stop()
    print(f"killed: {dict(run.kills)}; deleted: {len(run.deleted)} of {run.count} ingests")
    instance.close()
    # Every lease has run out, and what the killed wrote is old.
    run.instance = open_local_instance(folder, lambda: system_clock() + 15 * DAY_MS)
    for _ in range(10):
        report = purge_table(run.instance, "rows")
        if report.is_complete:
            break
    assert report.is_complete, report
    assert sorted(run.seen()) == sorted(run.rows)
    stored = {
        value
        for path in folder.rglob("*.parquet")
        for value in pq.read_table(path)["v"].to_pylist()
    }
    assert stored == {value for _, value in run.rows}
    objects = [(str(p), p.read_bytes()) for p in folder.rglob("*") if p.is_file()]
    for value in sorted(run.deleted)[:20]:
        assert find_remnants(objects, value) == []
    run.instance.close()
