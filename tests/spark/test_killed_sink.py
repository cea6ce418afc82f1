"""The streaming sink and its child processes, killed at random and restarted.

The environment variable `KILLS` sets the number of kills (2).
"""

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sleeper
from tests.seeds import choose_seed
from tests.spark.processes import kill_family
from tests.spark.session import preloading
from tests.spark.tables import NUMBERS, numbers_in

pytestmark = pytest.mark.timeout(1800)

_ROOT = Path(__file__).parents[2]
_KILLS = int(os.environ.get("KILLS", "2"))
# A kill comes so long after so many of a life's micro-batches: in the midst of anything.
_BATCHES_MAX = 3
_SECONDS_MORE_MAX = 0.7


class Sink:
    """One life of the query: a process, and all that it starts, in a group of their own."""

    def __init__(self, instance: sleeper.Instance, folder: Path, life: int) -> None:
        place, checkpoint = instance._ports.where, folder / "checkpoint"
        command = [sys.executable, "-m", "tests.spark.killed_sink", place, str(checkpoint)]
        self._process = subprocess.Popen(
            [*command, str(folder / f"life-{life}")],
            cwd=_ROOT,
            env=preloading(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the query, as soon as Spark is ready."""
        self._hear("ready")
        self._say("go")
        self._hear("started")

    def end(self) -> None:
        """Stops the query as one does."""
        self._say("stop")
        assert self._process.wait() == 0

    def kill(self) -> None:
        """The Python of the driver, its JVM and the JVM's Python daemons and workers."""
        kill_family(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)


def test_no_row_is_lost_or_doubled(
    instance: sleeper.Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[1000, 5000])
    seed = choose_seed()
    choice = random.Random(seed)
    start = time.monotonic()
    pending = Sink(instance, tmp_path, 0)
    for kills in range(1, _KILLS + 1):
        # The next one gets ready while this one runs.
        sink, pending = pending, Sink(instance, tmp_path, kills)
        with sink, contextlib.ExitStack() as cleanup:
            cleanup.callback(pending.kill)
            sink.start()
            _wait_for_batches(table, choice.randint(0, _BATCHES_MAX))
            time.sleep(choice.uniform(0, _SECONDS_MORE_MAX))
            sink.kill()
            cleanup.pop_all()
        result = numbers_in(table)
        assert result == [*range(len(result))], f"after kill {kills}, seed {seed}"
    with pending as last:
        last.start()
        _wait_for_batches(table, 1)
        last.end()
    result = numbers_in(table)
    assert result == [*range(len(result))], f"after {_KILLS} kills, seed {seed}"
    with capsys.disabled():
        seconds = time.monotonic() - start
        print(f"\n{_KILLS} kills, {len(result):,} rows, {seconds:.0f} s, seed {seed}")


def _wait_for_batches(table: sleeper.Table, count: int) -> None:
    """Waits for transactions of the table; each is one batch, as there is no other writer."""
    version = table.version + count
    while table.version < version:
        time.sleep(0.01)
