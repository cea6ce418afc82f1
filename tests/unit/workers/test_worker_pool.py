"""Crashed workers are replaced, but not endlessly if they crash at the start."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.jobs.process import SIGTERM_SECONDS_MAX
from sleeper.workers import pool as pools
from sleeper.workers.pool import WorkerPool, stop_pools


def test_workers_that_die_at_their_start_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_EARLY_DEATHS_MAX", 2)
    monkeypatch.setattr(pools, "_EARLY_SECONDS", 60.0)
    # There is no instance here, so each worker ends with an error.
    pool = WorkerPool(tmp_path / "nothing", 1)
    with pytest.raises(UnavailableError, match="2 workers died at their start"):
        keep_up_for(pool, 60.0)
    pool.stop()


def keep_up_for(pool: WorkerPool, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pool.keep_up(lambda: 0)
        time.sleep(0.02)


def test_workers_that_die_with_a_message_are_replaced_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_EARLY_DEATHS_MAX", 2)
    monkeypatch.setattr(pools, "_EARLY_SECONDS", 60.0)
    monkeypatch.setattr(pools, "_start_worker", dying_worker)
    pool = WorkerPool(tmp_path / "nothing", 1)
    deaths = 0
    deadline = time.monotonic() + 60.0
    try:
        while deaths < 3 and time.monotonic() < deadline:
            # Each of them had one message, which has gone back to its queue.
            deaths += pool.keep_up(lambda: 1)
            time.sleep(0.02)
    finally:
        pool.stop()
    assert deaths == 3


def dying_worker(_: Path, __: str, _on_line: object) -> pools._Worker:
    command = [sys.executable, "-S", "-c", "import os; os.abort()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    return pools._Worker(process, time.monotonic())


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_workers_of_several_pools_that_ignore_everything_are_killed_in_the_time_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_STOP_SECONDS", 0.3)
    monkeypatch.setattr(pools, "_TERMINATE_SECONDS", 0.3)
    monkeypatch.setattr(pools, "_start_worker", stubborn_worker)
    members = [WorkerPool(tmp_path / "nothing", 3) for _ in range(2)]
    for pool in members:
        pool.keep_up(lambda: 0)
    processes = [worker.process for pool in members for worker in pool._workers]
    begin = time.monotonic()
    stop_pools(*members)
    assert 0.6 <= time.monotonic() - begin < 6 * 0.6
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 6
    assert [len(pool) for pool in members] == [0, 0]


def stubborn_worker(_: Path, __: str, _on_line: object) -> pools._Worker:
    command = [sys.executable, "-S", "-c", STUBBORN]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return pools._Worker(process, time.monotonic())


def test_workers_are_stopped_before_the_process_ends_after_sigterm() -> None:
    assert pools._STOP_SECONDS + pools._TERMINATE_SECONDS < SIGTERM_SECONDS_MAX < 10
