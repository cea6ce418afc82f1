"""Processes that back up and restore, killed with SIGKILL and started again."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

import sleeper
from tests.seeds import choose_seed

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
LEAVES = 30
BACK_UP = "import sys, sleeper; sleeper.open_instance(sys.argv[1]).backup(sys.argv[2])"
RESTORE = "import sys, sleeper; sleeper.restore_instance(sys.argv[2], sys.argv[1])"


def run_killed(code: str, instance: Path, place: Path, is_due: Callable[[], bool]) -> None:
    """Runs the code and kills the process when it is due."""
    process = subprocess.Popen([sys.executable, "-c", code, str(instance), str(place)])
    while process.poll() is None:
        if is_due():
            process.kill()
            process.wait()
            return
        time.sleep(0.002)
    assert process.returncode == 0


def count_objects(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.parquet*"))


def has_more_objects(folder: Path, count: int) -> bool:
    return count_objects(folder) > count


def test_killed_backups_and_restores_are_repeated(tmp_path: Path) -> None:
    chosen = random.Random(choose_seed())
    source, place, target = tmp_path / "source", tmp_path / "place", tmp_path / "target"
    keys = list(range(10 * LEAVES))
    with sleeper.create_instance(source) as instance:
        properties = {"sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"}
        points = list(range(10, 10 * LEAVES, 10))
        table = instance.create_table("rows", SCHEMA, properties, points)
        table.ingest(pa.table({"k": keys, "v": [str(key) for key in keys]}))
    for limit in sorted(chosen.sample(range(3 * LEAVES), 2)):
        run_killed(BACK_UP, source, place, partial(has_more_objects, place, limit))
    run_killed(BACK_UP, source, place, lambda: False)
    assert count_objects(place) == 4 * LEAVES
    for limit in sorted(chosen.sample(range(3 * LEAVES), 2)):
        if not _is_complete(target):
            run_killed(RESTORE, target, place, partial(has_more_objects, target, limit))
    if not _is_complete(target):
        run_killed(RESTORE, target, place, lambda: False)
    with sleeper.open_instance(target) as restored:
        assert restored.table("rows").query().to_arrow()["k"].to_pylist() == keys


def _is_complete(target: Path) -> bool:
    """Returns whether the table is visible, after which a repeated restore is refused."""
    if not (target / "instance.properties").exists():
        return False
    with sleeper.open_instance(target) as instance:
        return instance.tables() == ["rows"]
