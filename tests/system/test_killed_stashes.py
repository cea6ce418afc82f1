"""A stash whose workers are killed at random, while the table changes without pause.

`SLEEPER_HAMMER_SECONDS` is the least time for which stashes are made.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import sleeper
from sleeper.api import Table
from sleeper.errors import SleeperError
from sleeper.jobs.queue import QueueName
from sleeper.retries import Backoff, retry
from sleeper.stash import Stash
from sleeper.stash.control import control_stashes, recover_stash
from sleeper.stash.record import StashRecord, StashRequest
from sleeper.stash.start import start_stash

pytestmark = pytest.mark.slow
ROWS = 30_000
KILLS_MAX = 4
SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
ZERO_DELAY = {
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.partition.splitting.threshold": "5000",
    "sleeper.table.compaction.files.batch.size": "3",
}


@pytest.mark.timeout(180)
def test_killed_workers_make_a_stash_that_equals_the_table_at_its_cut(tmp_path: Path) -> None:
    settings = {
        "sleeper.engine.threads": "1",
        "sleeper.compaction.job.creation.period.minutes": "1",
    }
    generator, seconds = random.Random(14), float(os.environ.get("SLEEPER_HAMMER_SECONDS", "0"))
    start, kills = time.monotonic(), 0
    with sleeper.create_instance(tmp_path / "instance", settings) as instance:
        table = instance.create_table("t", SCHEMA, ZERO_DELAY)
        table.ingest(rows(range(ROWS)))
        subprocess.run([*run_command(tmp_path), "--until-idle"], check=True, capture_output=True)
        with changing(table), running_workers(tmp_path) as process:
            while kills == 0 or time.monotonic() - start < seconds:
                destination = str(tmp_path / "stash")
                request = StashRequest(destination, piece_bytes=20_000, submitted=True)
                record = start_stash(instance._ports, request)
                expected = rows_held(instance, table, record)
                kills += kill_workers_until_its_end(instance, record, process, generator)
                check_stash(destination, record, expected)


def rows(keys: Any) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"value of {k}" for k in keys]})


def run_command(folder: Path) -> list[str]:
    sleeper_command = Path(sys.executable).with_name("sleeper")
    return [str(sleeper_command), "--instance", str(folder / "instance"), "run", "--workers", "2"]


@contextmanager
def running_workers(folder: Path) -> Iterator[psutil.Process]:
    with subprocess.Popen(run_command(folder), stderr=subprocess.DEVNULL) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def changing(table: Table) -> Iterator[None]:
    """Adds and deletes rows until the end."""
    ended = threading.Event()

    def change() -> None:
        step = 0
        while not ended.wait(0.05):
            step += 1
            first = ROWS + step * 10
            table.ingest(rows(range(first, first + 10)))
            table.delete(ranges=[(step * 20, step * 20 + 5)])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def rows_held(instance: sleeper.Instance, table: Table, record: StashRecord) -> dict[int, str]:
    """Returns the rows at the version. Its hold keeps them until the stash ends."""
    while (versions := record.versions()) is None:
        control_stashes(instance._ports)
    found = retry(
        lambda: table.query(as_of=versions[0].number).to_arrow(),
        on=SleeperError,
        backoff=Backoff(3, seconds_first=0.1),
    )
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


def kill_workers_until_its_end(
    instance: sleeper.Instance,
    record: StashRecord,
    runner: psutil.Process,
    generator: random.Random,
) -> int:
    """Kills workers while tasks are at work, and returns the number of kills.

    Sends the tasks again that became dead letters.
    """
    queue = instance._ports.jobs.queue(QueueName.STASH)
    kills = 0
    while record.is_running():
        counts = queue.counts()
        if counts.in_flight and kills < KILLS_MAX:
            time.sleep(generator.random() * 0.2)
            with suppress(psutil.NoSuchProcess, IndexError):
                generator.choice(runner.children()).kill()
                kills += 1
        if counts.dead and not counts.unfinished and record.decision() is None:
            recover_stash(instance._ports, record)
        time.sleep(0.05)
    return kills


def check_stash(destination: str, record: StashRecord, expected: dict[int, str]) -> None:
    """Reads the files with zcat, Python and the library, which agree with the rows."""
    decision = record.decision()
    assert decision is not None
    assert decision.outcome.value == "complete", decision.reason
    files = sorted(Path(destination, record.name, "t").iterdir())
    assert len(files) > 3
    by_zcat = subprocess.run(["zcat", *files], check=True, capture_output=True).stdout
    documents = [json.loads(line) for line in by_zcat.splitlines()]
    assert len(documents) == len(expected)
    assert {d["k"]: d["v"] for d in documents} == expected
    assert b"".join(gzip.decompress(file.read_bytes()) for file in files) == by_zcat
    stash = Stash.open(destination)
    stash.lock(record.name)
    with stash.scan("t") as scanned:
        assert b"".join(scanned.lines()) == by_zcat
