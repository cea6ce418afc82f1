"""Runs pieces of work in fresh processes and measures them.

A task is a function `task(watch, **arguments)` of a module here; its arguments (on standard
input) and what it returns (the last line of standard output) are JSON. It does `with watch:`
around the part that counts, so that what it needs before and what it checks afterwards is
not measured. Only this module and what the task's own imports are loaded in its process: a
peer's may run in another virtual environment.
"""

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


def _believe(_: Measured) -> None:
    """Accepts every result, for tasks that check their own."""


@dataclass(frozen=True, slots=True)
class Task:
    """A function by its module and name, and what to call it with.

    `check` looks at each run's result in this process: a peer does not vouch for itself. One
    that may fail is left out if it does; a result that is wrong is never passed over.
    """

    module: str
    function: str
    arguments: Mapping[str, Any]
    python: str = sys.executable
    check: Callable[[Measured], None] = field(default=_believe)
    may_fail: bool = False


class TaskFailedError(Exception):
    """The task's process failed; its output is on standard error."""


class Watch:
    """Measures wall time, processor time (with children) and peak resident memory of a block."""

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
    child = subprocess.run(
        [task.python, "-m", "benchmarks.measuring", task.module, task.function],
        input=json.dumps(dict(task.arguments)),
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if child.returncode:
        raise TaskFailedError(f"{task.module}.{task.function} failed")
    measurements = Measured(**json.loads(child.stdout.splitlines()[-1]))
    task.check(measurements)
    return measurements


def run_by_turns(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[Measured]]:
    """Runs all tasks, one after another, so many times over; the runs of each that did not fail.

    Every second turn goes backwards, so that none always follows the same one.
    """
    runs: dict[str, list[Measured]] = {name: [] for name in tasks}
    for turn in range(repeats):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            try:
                measurements = run(tasks[name])
            except TaskFailedError as error:
                if not tasks[name].may_fail:
                    raise
                print(f"  {name} is left out: {error}", file=sys.stderr)
                del runs[name]
                continue
            runs[name].append(measurements)
            print(
                f"  {name} {turn + 1}/{repeats}: {measurements.seconds:.2f} s,"
                f" {measurements.cpu_seconds:.1f} cpu s, {measurements.peak_bytes / 2**20:.0f} MiB",
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
    raise RuntimeError("this system does not report the peak of resident memory")


def _main() -> None:
    module, function = sys.argv[1:]
    arguments = json.load(sys.stdin)
    watch = Watch()
    answer = getattr(importlib.import_module(module), function)(watch, **arguments)
    measurements = {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "peak_bytes": watch.peak_bytes,
        "answer": answer or {},
    }
    print(json.dumps(measurements))


if __name__ == "__main__":
    _main()
