"""Runs pieces of work in fresh processes and measures them.

A task is a function `task(watch, **arguments)` of a module here; its arguments and what it
returns are JSON. It does `with watch:` around the part that counts, so that what it needs
before and what it checks afterwards is not measured.
"""

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[1]
_RESET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. `answer` is what the task returned."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A function by its module and name, and what to call it with."""

    module: str
    function: str
    arguments: Mapping[str, Any]


class Watch:
    """Wall time, processor time (children too) and the peak of resident memory in between."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        self._cpu, self._start = _cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = _cpu_seconds() - self._cpu
        self.peak_bytes = _peak_bytes()


def run(task: Task) -> Measured:
    """Runs the task in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.measuring", task.module, task.function]
    child = subprocess.run(
        [*command, json.dumps(dict(task.arguments))],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"{task.module}.{task.function} failed")
    return Measured(**json.loads(child.stdout.splitlines()[-1]))


def run_by_turns(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[Measured]]:
    """Runs all tasks, one after another, so many times over; the runs of each."""
    runs: dict[str, list[Measured]] = {name: [] for name in tasks}
    for turn in range(repeats):
        for name, task in tasks.items():
            measured = run(task)
            runs[name].append(measured)
            print(
                f"  {name} {turn + 1}/{repeats}: {measured.seconds:.2f} s,"
                f" {measured.cpu_seconds:.1f} cpu s, {measured.peak_bytes / 2**20:.0f} MiB",
                file=sys.stderr,
            )
    return runs


def peaks_mib(runs: list[Measured]) -> list[float]:
    """The peak of each run in MiB."""
    return [r.peak_bytes / 2**20 for r in runs]


def rates(rows: int, runs: list[Measured]) -> list[float]:
    """Millions of rows a second of each run."""
    return [rows / r.seconds / 1e6 for r in runs]


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell the peak of resident memory")


def _main() -> None:
    module, function, arguments = sys.argv[1:]
    watch = Watch()
    answer = getattr(importlib.import_module(module), function)(watch, **json.loads(arguments))
    measured = {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "peak_bytes": watch.peak_bytes,
        "answer": answer or {},
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    _main()
