"""Crashed workers are replaced, but not endlessly if they crash at the start."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.workers import pool as pools
from sleeper.workers.pool import WorkerPool


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
