"""Results as a table in Markdown, as JSON, and as a picture."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.picture import draw_aims, draw_comparisons
from benchmarks.result import Comparison, Figure, Result, number

_LIBRARIES = ("datafusion", "pyarrow", "obstore", "datasketches")


def write_reports(results: Sequence[Result], folder: Path, command: str) -> Path:
    """Writes the page, its JSON and its pictures into the folder; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    about = _about(command)
    raw = {"about": about, "results": [asdict(r) for r in results]}
    (folder / "benchmarks.json").write_text(json.dumps(raw, indent=1) + "\n")
    (folder / "benchmarks.svg").write_text(draw_aims(results))
    (folder / "benchmarks-peers.svg").write_text(draw_comparisons(results))
    path = folder / "benchmarks.md"
    path.write_text(table(results, about))
    return path


def table(results: Sequence[Result], about: dict[str, Any]) -> str:
    """Returns a Markdown page: the environment, then a table for each benchmark."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{about['command'].strip()}` on {about['date']}; not edited by hand.",
        "Each figure is the median of its runs, with the least and the greatest beside it;",
        "ours, its anchor and peers ran by turns, each run in a fresh process; each result was",
        "checked (rows, order, sums) before it counted. *Peak* is resident memory (VmHWM).",
        "",
        f"Machine: {about['processors']} × {about['processor']}, {about['memory_gib']} GiB,"
        f" {about['system']}, Python {about['python']}; {about['libraries']}.",
        f"Load before the first figure: {about['load']} (1 is one busy processor).",
        "",
        "![How far each aim is reached](benchmarks.svg)",
    ]
    if any(result.comparisons for result in results):
        lines += ["", "![Beside peers](benchmarks-peers.svg)"]
    for result in results:
        lines += ["", f"## {result.name}", "", result.work, ""]
        lines += _side_by_side(result.comparisons)
        if result.figures:
            lines += ["| what | median | least – greatest | aim | |", "|---|---|---|---|---|"]
            lines += [_row(figure) for figure in result.figures]
        notes = [f"- {f.what}: {f.note}" for f in result.figures if f.note]
        notes += [f"- {note}" for note in result.notes]
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def _side_by_side(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a table with a row for each engine, a column for each job, and the best in bold."""
    if not comparisons:
        return []
    units = [f"{comparison.job}, {comparison.figures[0].unit}" for comparison in comparisons]
    lines = [f"| | {' | '.join(units)} |", "|---" * (len(units) + 1) + "|"]
    everyone = dict.fromkeys(
        figure.what for comparison in comparisons for figure in comparison.figures
    )
    lines += [f"| {who} | {' | '.join(_cell(who, c) for c in comparisons)} |" for who in everyone]
    return [*lines, ""]


def _cell(who: str, comparison: Comparison) -> str:
    for figure in comparison.figures:
        if figure.what == who:
            text = number(figure.value)
            text = f"**{text}**" if figure is comparison.best else text
            return f"{text} ({number(figure.low)} – {number(figure.high)})"
    return ""


def _row(figure: Figure) -> str:
    spread = f"{number(figure.low)} – {number(figure.high)}"
    aim = met = ""
    if figure.aim is not None:
        aim = f"{'≤' if figure.aim.is_most else '≥'} {number(figure.aim.bound)}"
        met = "met" if figure.aim.is_met(figure.value) else "**missed**"
    return f"| {figure.what} | {number(figure.value)} {figure.unit} | {spread} | {aim} | {met} |"


def _about(command: str) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "libraries": ", ".join(f"{name} {version(name)}" for name in _LIBRARIES),
        "load": round(_LOAD_AT_START, 1),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


# Taken when the benchmarks begin, since they are a load themselves.
_LOAD_AT_START = os.getloadavg()[0]
