"""Processes that load a snapshot table, read it, and are killed.

`SLEEPER_HAMMER_SECONDS` makes the readers run longer.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.clock import system_clock
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import collect_table, collect_table_orphans
from sleeper.ingest.service import ingest_paths, ingest_rows, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.workers.worker import Worker
from tests.system.killed_loads import STAGES
from tests.unit.bulk_import.in_process import InProcessCluster

ROOT = Path(__file__).parents[2]
SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "load", "type": "LongType"}]}'
)
DAY_MS = 24 * 3600 * 1000
OVERTAKEN = """
import sys
from sleeper.cli.main import main
from sleeper.ingest import gathered_rows
original = gathered_rows.write_sorted
def wait(*arguments):
    print("it has begun", flush=True)
    sys.stdin.readline()
    return original(*arguments)
gathered_rows.write_sorted = wait
sys.argv = ["sleeper", "--instance", sys.argv[1], "ingest", "t", sys.argv[2], "--job-id", "early"]
main()
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    # A message meets many deaths here.
    settings = {"sleeper.engine.threads": "1", "sleeper.queue.receives.max": "100"}
    create_local_instance(tmp_path / "instance", "test", settings)
    instance = open_local_instance(tmp_path / "instance")
    properties = {
        "sleeper.table.type": "snapshot",
        "sleeper.table.gc.delay.minutes": "0",
        "sleeper.table.partition.splitting.threshold": "15000",
    }
    create_table(instance, "t", SCHEMA, properties)
    yield instance
    instance.close()


def start(module: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"tests.system.{module}", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def run(module: str, *arguments: str) -> str:
    """Returns the output of a process that must succeed."""
    with start(module, *arguments) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def load(instance: Instance, number: int, *keys: int) -> int:
    arrays = {"k": pa.array(keys, pa.int64()), "load": pa.array([number] * len(keys), pa.int64())}
    published = ingest_rows(instance, "t", [pa.record_batch(arrays)], f"load-{number}").number
    assert published is not None
    return published


def rows(instance: Instance, version: int | None = None) -> dict[int, int]:
    """Returns the load of each key."""
    with open_query(instance, "t", Query(version=version)) as result:
        return {row["k"]: row["load"] for batch in result for row in batch.to_pylist()}


def write_source(folder: Path, number: int, *keys: int) -> str:
    path = folder / f"source-{number}.csv"
    path.write_text("k,load\n" + "".join(f"{key},{number}\n" for key in keys))
    return str(path)


def published_jobs(instance: Instance) -> list[str | None]:
    """Returns the jobs that have published a version, oldest first."""
    with instance.table("t").state.reading() as state:
        history = state.history.newest(1000).entries
    return [each.job for each in reversed(history) if each.operation == "load"]


def check_nothing_is_left(instance: Instance) -> None:
    """Checks that once they are old, no files but those of the newest version are there."""
    ref = instance.tables.index.find("t")
    later = open_local_instance(Path(instance.where), lambda: system_clock() + 29 * DAY_MS)
    collect_table(later, "t")
    collect_table_orphans(later, "t")
    with later.table("t").state.reading() as state:
        names = {file.path + s for file in state.files.all() for s in ("", *file.sidecars)}
    assert later.table("t").state.holds.all() == []
    objects = {o.path for o in later.storage.root.list_objects(ref.id) if "/data/" in o.path}
    assert objects == names
    later.close()


def test_readers_see_one_load_while_loads_publish(instance: Instance, tmp_path: Path) -> None:
    """Set SLEEPER_HAMMER_SECONDS to run it for longer."""
    load(instance, 0, *range(40_000))
    stop = tmp_path / "stop"
    roles = ["load", "shape", "read", "read", "read old"]
    processes = [start("snapshot_hammer", instance.where, role, str(stop)) for role in roles]
    end = time.monotonic() + float(os.environ.get("SLEEPER_HAMMER_SECONDS", "2"))

    def has_ended() -> bool:
        is_over = min(count(instance, "load"), count(instance, "expire versions")) > 1
        return (is_over and time.monotonic() > end) or any(p.poll() is not None for p in processes)

    while not has_ended():
        time.sleep(0.05)
    stop.touch()
    for role, process in zip(roles, processes, strict=True):
        with process:
            output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, role
        actions, _ = json.loads(output)
        assert actions > 0
    assert count(instance, "expire versions") > 1
    check_nothing_is_left(instance)


def count(instance: Instance, operation: str) -> int:
    """Returns the number of transactions of the operation."""
    with instance.table("t").state.reading() as state:
        return sum(each.operation == operation for each in state.history.newest(10_000).entries)


def test_a_killed_load_is_not_seen_and_leaves_nothing(instance: Instance, tmp_path: Path) -> None:
    load(instance, 0, 1, 2, 3)
    source = write_source(tmp_path, 1, 1, 2)
    *before, last = STAGES
    run("killed_loads", instance.where, source, *before)
    assert rows(instance) == {1: 0, 2: 0, 3: 0}
    run("killed_loads", instance.where, source, last)
    assert rows(instance) == {1: 1, 2: 1}
    # The job again, as its sender repeats it.
    assert ingest_paths(instance, "t", [source], last).done_before
    load(instance, 2, 4)
    assert rows(instance) == {4: 2}
    assert published_jobs(instance) == ["load-0", last, "load-2"]
    check_nothing_is_left(instance)


def test_a_killed_bulk_import_publishes_once_or_not_at_all(
    instance: Instance, tmp_path: Path
) -> None:
    load(instance, 0, 1, 2, 3)
    source = str(tmp_path / "source.parquet")
    arrays = {"k": pa.array([1, 2], pa.int64()), "load": pa.array([1, 1], pa.int64())}
    pq.write_table(pa.table(arrays), source)
    run("killed_loads", instance.where, source, "before-the-commit")
    assert rows(instance) == {1: 0, 2: 0, 3: 0}
    run("killed_loads", instance.where, source, "after-the-commit")
    assert rows(instance) == {1: 1, 2: 1}
    again = bulk_import_paths(instance, "t", [source], InProcessCluster, "after-the-commit")
    assert again.done_before
    with pytest.raises(InvalidRequestError, match="load before-the-commit began at transaction 4"):
        bulk_import_paths(instance, "t", [source], InProcessCluster, "before-the-commit")
    assert published_jobs(instance) == ["load-0", "after-the-commit"]
    check_nothing_is_left(instance)


def test_the_message_of_a_killed_load_publishes_it_once(instance: Instance, tmp_path: Path) -> None:
    source = write_source(tmp_path, 1, 1, 2)
    submit_ingest(instance, "t", [source], "job")
    worker = Worker(instance, "task", threading.Event())
    run("killed_loads", instance.where, "queue", *STAGES)
    assert rows(instance) == {1: 1, 2: 1}
    assert instance.background is not None
    instance.background.recover()
    assert worker.run_one()  # it is already done
    assert not worker.run_one()
    assert published_jobs(instance) == ["job"]
    (job,) = instance.jobs.tracker.recent(JobKind.INGEST)
    assert job.state is JobState.COMMITTED
    assert instance.jobs.queue(QueueName.INGEST).counts().unfinished == 0
    assert rows(instance) == {1: 1, 2: 1}
    check_nothing_is_left(instance)


def test_of_two_overlapping_loads_the_earlier_is_refused(
    instance: Instance, tmp_path: Path
) -> None:
    first = load(instance, 0, 1)
    command = [sys.executable, "-c", OVERTAKEN, instance.where, write_source(tmp_path, 1, 1, 2)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as early:
        assert early.stdout is not None
        assert early.stdout.readline() == "it has begun\n"
        published = load(instance, 2, 3)
        _, errors = early.communicate("\n", timeout=60)
    assert early.returncode == 1
    assert (
        f"load early began at transaction {first + 1}, and load load-2, which began later, at "
        f"{published - 1}, has published version {published}" in errors
    )
    assert rows(instance) == {3: 2}
    load(instance, 3, 4)
    assert rows(instance) == {4: 3}
    check_nothing_is_left(instance)
