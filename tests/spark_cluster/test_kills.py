"""Processes of a cluster that are killed lose no row and repeat none.

`make soak` repeats each case at random moments. The environment variable `KILLS_FILE` names a
file to which a run adds its list: a line of a Markdown table for each case, with a hash of the
hashes of every column.
"""

import contextlib
import hashlib
import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import sleeper
from tests.examples import examples
from tests.seeds import choose_seed
from tests.servers.aws_instance import AwsInstance
from tests.spark.imports import PATIENCE_SECONDS
from tests.spark_cluster.cluster import Cluster, Driver
from tests.spark_cluster.conftest import DIVIDED
from tests.spark_cluster.program import ROWS, SCHEMA, make_digest, make_rows

pytestmark = pytest.mark.timeout(6 * PATIENCE_SECONDS * examples(1))

_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    # Two executors for each of two drivers, because Spark repeats a task on another host.
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}
_ON_DEMAND = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
}
_EVENTS = {
    "driver": "driver killed, and started again under its job id, with dynamic allocation",
    "executor": "executor killed, with dynamic allocation",
    "both": "Python worker killed, then an executor",
}
# Work and what is killed. The last two are for soaks: `tests/spark/test_killed_import.py` kills a
# driver without a cluster, and two drivers with one job id are below.
_CASES = [("import", "executor"), ("write", "both"), ("import", "driver"), ("write", "driver")]
_SOAKED = 2
_EXPECTED = make_digest(make_rows(range(ROWS)))


class Work:
    """A table of its own, and drivers that add the rows to it under one job id."""

    def __init__(
        self, cluster: Cluster, aws: AwsInstance, instance: sleeper.Instance, kind: str
    ) -> None:
        self.name = f"{kind}_{uuid.uuid4().hex[:8]}"
        self.table = instance.create_table(self.name, SCHEMA, DIVIDED)
        self._cluster, self._aws, self._instance, self._kind = cluster, aws, instance, kind
        self._starts = 0

    def start(self, settings: dict[str, str] | None = None, slow: str = "all") -> Driver:
        self._starts += 1
        name = f"{self.name}_{self._starts}"
        if self._kind == "write":
            return self._cluster.start_program(
                "write", self.name, "j", slow, name=name, conf=settings
            )
        return self._cluster.start_import(
            self.name, "j", name=name, settings=self._cluster.settings() | (settings or {})
        )

    def data_files(self) -> int:
        """Returns the number of data files in the bucket, committed or not."""
        prefix = f"{self._instance._ports.table(self.name).ref.id}/data/"
        bucket = f"sleeper-{self._aws.id}-table-data-000000000000"
        listed = self._aws.s3().list_objects_v2(Bucket=bucket, Prefix=prefix)
        return sum(each["Key"].endswith(".parquet") for each in listed.get("Contents", []))

    def check(self) -> str:
        """Asserts that the table has the rows once; returns a hash of the hashes of columns."""
        digest = make_digest(self.table.query().to_arrow())
        assert digest == _EXPECTED
        return hashlib.sha256(repr(sorted(digest["columns"].items())).encode()).hexdigest()[:16]


def wait_until(driver: Driver, condition: Callable[[], Any]) -> None:
    """Waits until that holds, or the driver has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not driver.has_ended and not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def record(work: str, event: str, files: int, digest: str) -> None:
    """Adds a line to the list, if the run has one."""
    if "KILLS_FILE" in os.environ:
        with Path(os.environ["KILLS_FILE"]).open("a") as file:
            file.write(f"| {work} | {event} | {files} | {ROWS:,} | `{digest}` |\n")


@pytest.mark.parametrize(("kind", "victim"), _CASES[: None if examples(1) > 1 else -_SOAKED])
def test_work_is_done_once_although_a_process_is_killed(
    cluster: Cluster, aws: AwsInstance, instance: sleeper.Instance, kind: str, victim: str
) -> None:
    choice = random.Random(f"{choose_seed()} {victim} {kind}")
    for _ in range(examples(1)):
        work = Work(cluster, aws, instance, kind)
        driver = work.start(_ON_DEMAND if victim == "executor" else {})
        files = kill(cluster, work, driver, victim, choice)
        if victim == "driver":
            driver = work.start(_ON_DEMAND)
        driver.end()
        record(kind, _EVENTS[victim], files, work.check())


def kill(cluster: Cluster, work: Work, driver: Driver, victim: str, choice: random.Random) -> int:
    """Kills processes at random moments; returns the number of data files at the first one."""
    wait_until(driver, cluster.executors if victim == "executor" else cluster.python_workers)
    if choice.random() < 0.5:
        wait_until(driver, work.data_files)
    else:
        time.sleep(choice.uniform(0, 1))
    files = work.data_files()
    assert not driver.has_ended, driver.end()
    if victim == "driver":
        driver.kill()
        return files
    if victim == "both":
        wait_until(driver, lambda: _kill_one(cluster.python_workers(), choice))
    wait_until(driver, lambda: _kill_one(cluster.executors(), choice))
    return files


def _kill_one(processes: list[psutil.Process], choice: random.Random) -> bool:
    """Returns whether it has killed one of them. They may have ended by themselves."""
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        choice.choice(processes).kill()
        return True
    return False


def test_two_drivers_with_one_job_id_and_a_slow_task_add_the_rows_once(
    cluster: Cluster, aws: AwsInstance, instance: sleeper.Instance
) -> None:
    work = Work(cluster, aws, instance, "write")
    drivers = [work.start(_SPECULATION, "first") for _ in range(2)]
    for driver in drivers:
        driver.end()
        assert driver.steps()["write"] == _EXPECTED
    event = "two drivers with one job id, each with a task that only its speculative copy ends"
    record("write", event, work.data_files(), work.check())
