"""Results with how they were measured, kept as JSON so that each can be measured alone."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.result import Aim, Comparison, Figure, Result

_LIBRARIES = ("datafusion", "pyarrow", "obstore", "datasketches")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A result.

    `load` is the load average before the command's first run, and `busy` the processors that
    other programs used before this benchmark.
    """

    result: Result
    command: str
    date: str
    load: float
    busy: float
    machine: str


def record(result: Result, command: str, load: float, busy: float) -> Recorded:
    """Returns a result that was measured now on this machine."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Recorded(result, command, date, load, busy, _describe_machine())


def write_records(records: Sequence[Recorded], path: Path) -> None:
    """Writes the records as JSON."""
    path.write_text(json.dumps([asdict(each) for each in records], indent=1) + "\n")


def read_records(path: Path) -> list[Recorded]:
    """Reads the records of a file, of which there are none if it does not exist."""
    if not path.exists():
        return []
    return [Recorded(**{**each, "result": _result(each["result"])}) for each in _load(path)]


def replace_records(
    old: Iterable[Recorded], new: Iterable[Recorded], names: Sequence[str]
) -> list[Recorded]:
    """Returns the newest record of each benchmark, in the order of the names."""
    by_name = {each.result.name: each for each in (*old, *new)}
    return [by_name[name] for name in names if name in by_name]


def _load(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())
    return found if isinstance(found, list) else []


def _result(found: dict[str, Any]) -> Result:
    comparisons = [
        Comparison(**{**each, "figures": tuple(map(_figure, each["figures"]))})
        for each in found["comparisons"]
    ]
    figures = tuple(map(_figure, found["figures"]))
    changed = {"figures": figures, "comparisons": tuple(comparisons)}
    return Result(**{**found, **changed, "notes": tuple(found["notes"])})


def _figure(found: dict[str, Any]) -> Figure:
    aim = None if found["aim"] is None else Aim(**found["aim"])
    return Figure(**{**found, "aim": aim})


def _describe_machine() -> str:
    memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return (
        f"{os.cpu_count()} × {_processor()}, {memory} GiB, {system},"
        f" Python {platform.python_version()}; {libraries}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
