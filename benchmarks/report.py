"""Results as a table in Markdown, as JSON, and as a picture."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.result import Figure, Result

_LIBRARIES = ("datafusion", "pyarrow", "obstore", "datasketches")


def write_reports(results: Sequence[Result], folder: Path, command: str) -> Path:
    """Writes `benchmarks.md`, `.json` and `.svg` into the folder; the first one's path."""
    folder.mkdir(parents=True, exist_ok=True)
    about = _about(command)
    raw = {"about": about, "results": [asdict(r) for r in results]}
    (folder / "benchmarks.json").write_text(json.dumps(raw, indent=1) + "\n")
    (folder / "benchmarks.svg").write_text(picture(results))
    path = folder / "benchmarks.md"
    path.write_text(table(results, about))
    return path


def table(results: Sequence[Result], about: dict[str, Any]) -> str:
    """One Markdown page: what ran where, then a table for each benchmark."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{about['command'].strip()}` on {about['date']}; not edited by hand.",
        "Each figure is the median of its runs, with the least and the greatest beside it;",
        "ours and its anchor ran by turns, each run in a fresh process, and each result was",
        "checked (rows, order, sums) before it counted. *Peak* is resident memory (VmHWM).",
        "",
        f"Machine: {about['processors']} × {about['processor']}, {about['memory_gib']} GiB,"
        f" {about['system']}, Python {about['python']}; {about['libraries']}.",
        f"Load before the first figure: {about['load']} (1 is one busy processor).",
        "",
        "![How far each aim is reached](benchmarks.svg)",
    ]
    for result in results:
        lines += ["", f"## {result.name}", "", result.work, ""]
        lines += ["| what | median | least – greatest | aim | |", "|---|---|---|---|---|"]
        lines += [_row(figure) for figure in result.figures]
        notes = [f"- {f.what}: {f.note}" for f in result.figures if f.note]
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def picture(results: Sequence[Result]) -> str:
    """A bar for each figure with an aim: how far it is reached, 1 being just reached."""
    bars = [(f"{r.name}: {f.what}", f) for r in results for f in r.figures if f.aim is not None]
    width, label_width, step, most = 900, 430, 22, 4.0
    unit = (width - label_width - 90) / most
    height = step * (len(bars) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (label, each) in enumerate(bars):
        assert each.aim is not None
        share = each.aim.share(each.value)
        y = step * (place + 1)
        colour = "#2a7f62" if each.aim.is_met(each.value) else "#c0392b"
        shown = f"{_number(each.value)} {each.unit}"
        length = min(share, most) * unit
        parts += [
            f'<text x="{label_width - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{label_width}" y="{y + 3}" width="{length:.1f}" height="{step - 6}"'
            f' fill="{colour}"/>',
            f'<text x="{label_width + length + 6:.1f}" y="{y + 14}">{escape(shown)}</text>',
        ]
    x = label_width + unit
    parts += [
        f'<line x1="{x}" y1="12" x2="{x}" y2="{height - step}" stroke="black"'
        ' stroke-dasharray="3 3"/>',
        f'<text x="{x}" y="{height - 6}" text-anchor="middle">aim</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(figure: Figure) -> str:
    spread = f"{_number(figure.low)} – {_number(figure.high)}"
    aim = met = ""
    if figure.aim is not None:
        aim = f"{'≤' if figure.aim.is_most else '≥'} {_number(figure.aim.bound)}"
        met = "met" if figure.aim.is_met(figure.value) else "**missed**"
    return f"| {figure.what} | {_number(figure.value)} {figure.unit} | {spread} | {aim} | {met} |"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


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
