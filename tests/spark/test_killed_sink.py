"""The streaming sink killed with everything that belongs to it, at random, and started again.

KILLS says how often, however long it takes; otherwise it is 20 times, or as often as a
minute allows, and three times at least.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sleeper
from tests.spark.tables import NUMBERS, numbers_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_ROOT = Path(__file__).parents[2]
_KILLS, _KILLS_MIN = 20, 3
_SECONDS = 60
_SECONDS_ALIVE_MAX = 4.0


class Sink:
    """One life of the query: a process, and all that it starts, in a group of their own."""

    def __init__(self, instance: sleeper.Instance, folder: Path, life: int) -> None:
        place, checkpoint = instance._ports.where, folder / "checkpoint"
        command = [sys.executable, "-m", "tests.spark.killed_sink", place, str(checkpoint)]
        self._process = subprocess.Popen(
            [*command, str(folder / f"life-{life}")],
            cwd=_ROOT,
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

    def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)

    def end(self) -> None:
        self.say("stop")
        assert self._process.wait() == 0

    def kill(self) -> None:
        """The Python of the driver, its JVM and the JVM's Python daemons and workers."""
        for group in {os.getpgid(pid) for pid in _family(self._process.pid)}:
            os.killpg(group, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def test_no_row_is_lost_or_doubled(
    instance: sleeper.Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[1000, 5000])
    seed = random.randrange(2**32)
    choice = random.Random(seed)
    wanted = int(os.environ.get("KILLS", _KILLS))
    start = time.monotonic()
    kills = 0
    while kills < wanted:
        is_late = time.monotonic() - start > _SECONDS and "KILLS" not in os.environ
        if is_late and kills >= _KILLS_MIN:
            break
        with Sink(instance, tmp_path, kills) as sink:
            sink.hear("ready")
            sink.say("go")
            sink.hear("started")
            time.sleep(choice.uniform(0, _SECONDS_ALIVE_MAX))
        kills += 1
        found = numbers_in(table)
        assert found == [*range(len(found))], f"after kill {kills}, seed {seed}"
    before = len(numbers_in(table))
    with Sink(instance, tmp_path, kills) as sink:
        sink.hear("ready")
        sink.say("go")
        sink.hear("started")
        while len(numbers_in(table)) <= before:
            time.sleep(0.2)
        sink.end()
    found = numbers_in(table)
    assert found == [*range(len(found))], f"after {kills} kills, seed {seed}"
    with capsys.disabled():
        print(
            f"\n{kills} kills, {len(found):,} rows, {time.monotonic() - start:.0f} s, seed {seed}"
        )


def _family(pid: int) -> set[int]:
    """The process and its descendants."""
    import psutil

    try:
        parent = psutil.Process(pid)
        return {pid, *(child.pid for child in parent.children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()
