"""Results as a table in Markdown, as JSON, and as a picture."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.picture import draw_aims, draw_comparisons
from benchmarks.records import Recorded, write_records
from benchmarks.result import Comparison, Figure, number


def write_reports(results: Sequence[Recorded], folder: Path) -> Path:
    """Writes the page, its JSON and its pictures into the folder; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    write_records(results, folder / "benchmarks.json")
    measured = [each.result for each in results]
    (folder / "benchmarks.svg").write_text(draw_aims(measured))
    (folder / "benchmarks-peers.svg").write_text(draw_comparisons(measured))
    path = folder / "benchmarks.md"
    path.write_text(table(results))
    return path


def table(results: Sequence[Recorded]) -> str:
    """Returns a Markdown page with a table for each benchmark."""
    machines = list(dict.fromkeys(each.machine for each in results))
    lines = [
        "# Benchmarks",
        "",
        "Written by the commands below; not edited by hand. Each figure is the median of its",
        "runs, with the least and the greatest beside it; ours, its anchor and peers ran by turns,",
        "each run in a fresh process; each result was checked (rows, order, sums) before it",
        "counted. *Peak* is resident memory (VmHWM). *Load* is the load average before the first",
        "run of the command, and *busy* the processors that other programs used for three seconds",
        "before the benchmark.",
        "",
        *_describe_machines(machines),
        "![How far each aim is reached](benchmarks.svg)",
    ]
    if any(each.result.comparisons for each in results):
        lines += ["", "![Beside peers](benchmarks-peers.svg)"]
    for each in results:
        lines += ["", f"## {each.result.name}", "", each.result.work, ""]
        place = f"machine {machines.index(each.machine) + 1}, " if len(machines) > 1 else ""
        how = f"load {each.load:.2f}, busy {each.busy:.2f}"
        lines += [f"`{each.command}`, {each.date}, {place}{how}.", ""]
        lines += _side_by_side(each.result.comparisons)
        figures = each.result.figures
        if figures:
            lines += ["| what | median | least – greatest | aim | |", "|---|---|---|---|---|"]
            lines += [_row(figure) for figure in figures]
        notes = [f"- {f.what}: {f.note}" for f in figures if f.note]
        notes += [f"- {note}" for note in each.result.notes]
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def _describe_machines(machines: Sequence[str]) -> list[str]:
    """Returns a line for the machine, or for each of several, which the results name."""
    if len(machines) == 1:
        return [f"Machine: {machines[0]}.", ""]
    return [f"- Machine {place}: {each}." for place, each in enumerate(machines, 1)] + [""]


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
