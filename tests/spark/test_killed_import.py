"""Bulk imports whose processes are killed at random lose and double no rows.

`tests/spark_cluster/` kills executors of their own processes, and drivers of those.

The environment variable `KILLS` sets the number of kills per test (1). `SLEEPER_TEST_SEED` repeats
the random choices of a printed seed, but not the timing of the machine.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.files import SIDECAR_SUFFIXES
from sleeper.garbage_collection.service import collect_table_orphans
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.local.instance import open_local_instance
from tests.seeds import choose_seed
from tests.spark.imports import (
    PATIENCE_SECONDS,
    Import,
    check_stored,
    data_files,
    instance_to_import_into,
    stored_rows,
    write,
)
from tests.spark.processes import family, python_workers, read_command

pytestmark = pytest.mark.timeout(6 * PATIENCE_SECONDS)

ROWS = 200_000
FIFTEEN_DAYS_MS = 15 * 24 * 3600 * 1000
KILLS = int(os.environ.get("KILLS", "1"))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with instance_to_import_into(tmp_path / "instance") as created:
        yield created


@pytest.fixture
def choice(capsys: pytest.CaptureFixture[str]) -> Iterator[random.Random]:
    with capsys.disabled():
        seed = choose_seed()
    return random.Random(seed)


def collect_orphans(instance: Instance) -> int:
    """Collects orphans as an operator does two weeks later; returns the number of deletions."""
    later = open_local_instance(Path(instance.where), lambda: system_clock() + FIFTEEN_DAYS_MS)
    later.background.recover()
    report = collect_table_orphans(later, "t")
    later.close()
    return report.objects


def check_files_on_disk(instance: Instance) -> None:
    """Asserts that only known files and their sidecars exist, no spill files."""
    with instance.table("t").state.reading() as state:
        names = {Path(instance.storage.root.url_of(file.path)) for file in state.files.all()}
    folder = Path(instance.where) / instance.table("t").ref.id / "data"
    present = {path for path in folder.rglob("*") if path.is_file()}
    assert present == {Path(f"{p}{s}") for p in names for s in ("", *SIDECAR_SUFFIXES)} & present
    assert data_files(instance) == names
    spill = [path.name for path in (Path(instance.where) / "spill").glob("*")]
    assert [name for name in spill if not name.startswith(f"{os.getpid()}@")] == []


def test_a_killed_driver_is_restarted(
    instance: Instance, tmp_path: Path, choice: random.Random
) -> None:
    source = write(tmp_path / "in", ROWS)
    count = 0
    for _ in range(KILLS):
        life = Import(instance, source, "local[2]", f"j{count}")
        if choice.random() < 0.7:
            life.wait_for_data_files()
        time.sleep(choice.uniform(0, 5))
        life.kill()
        # All of a job is there or nothing: one that was committed is not what is tried next.
        count, half = divmod(stored_rows(instance), ROWS)
        assert half == 0
    Import(instance, source, "local[2]", f"j{count}").end()
    assert "was already committed" in Import(instance, source, "local[2]", f"j{count}").end()
    check_stored(instance, ROWS, times=count + 1)
    left = len(data_files(instance))
    collection = collect_orphans(instance)
    check_files_on_disk(instance)
    check_stored(instance, ROWS, times=count + 1)
    assert (collection > 0) == (len(data_files(instance)) < left)


def test_killed_python_workers_are_replaced(
    instance: Instance, tmp_path: Path, choice: random.Random
) -> None:
    source = write(tmp_path / "in", ROWS)
    life = Import(instance, source, "local[2,50]")
    kills = 0
    with contextlib.closing(_moments(life, choice)) as moments:
        for victim in moments:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                kills += 1
            if kills == KILLS:
                break
    assert kills
    assert f"{ROWS:,} rows" in life.end()
    check_stored(instance, ROWS)
    collect_orphans(instance)
    check_files_on_disk(instance)


def _moments(life: Import, choice: random.Random) -> Iterator[psutil.Process]:
    """Yields Python workers, at some moments until the import ends."""
    life.wait_until(lambda: python_workers(life.pid))
    if choice.random() < 0.5:
        life.wait_for_data_files()
    while not life.has_ended:
        result = python_workers(life.pid)
        if result:
            yield choice.choice(result)
        time.sleep(choice.uniform(0, 3))


def test_a_killed_jvm_is_reported_as_a_failure(instance: Instance, tmp_path: Path) -> None:
    source = write(tmp_path / "in", ROWS)
    life = Import(instance, source, "local[2]")
    life.wait_for_data_files()
    next(p for p in family(life.pid) if "SparkSubmit" in read_command(p)).kill()
    output = life.end(status=1)
    assert "error: Spark failed" in output
    # PySpark's thread that waits for Java's counters may show one of its own.
    assert f'File "{Path(sleeper.__file__).parent}' not in output
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert job.state is JobState.FAILED
    assert "Spark failed" in job.reasons[0]
    assert stored_rows(instance) == 0


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_cancelled_import_fails_and_leaves_no_process(
    instance: Instance, tmp_path: Path, signal_: signal.Signals
) -> None:
    source = write(tmp_path / "in", ROWS)
    life = Import(instance, source, "local[2]")
    life.wait_for_data_files()
    processes_at_start = family(life.pid)
    life.process.send_signal(signal_)
    output = life.process.communicate(timeout=PATIENCE_SECONDS)[1]
    # Java may notice that it is over before Python says why; it has failed either way.
    assert life.process.returncode in (1, 130)
    assert "interrupted" in output or "Spark failed" in output
    _, living = psutil.wait_procs(processes_at_start, timeout=PATIENCE_SECONDS)
    assert living == []
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert job.state is JobState.FAILED
    assert job.reasons[0] in output
    assert stored_rows(instance) == 0
    collect_orphans(instance)
    check_files_on_disk(instance)
