"""Texts on results: a failure with the end of its history, and totals of many seeds.

A line of a history has the virtual time, the thread (process and name), and what the thread did.
Times are shown in seconds before the end, because failures are found there.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from simulation.faults import KILLED
from simulation.plan import Plan
from simulation.result import Result

_LAST_LINES = 20
_LINES_PER_PROCESS = 3
_FAULTS = 8
_WIDTH_MAX = 110
_RED, _YELLOW, _BOLD, _OFF = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class _Line:
    """A parsed line of a history."""

    seconds: float
    thread: str
    text: str

    @property
    def process(self) -> str:
        return self.thread.partition("/")[0]

    @property
    def is_fault(self) -> bool:
        return " ! " in self.text or self.text.startswith(f"{KILLED} ")


def replay_command(plan: Plan) -> str:
    """Returns the command that runs the seed of a plan again."""
    size = f" --size {plan.size}" if plan.size else ""
    focus = "".join(f" --focus {shlex.quote(each)}" for each in plan.focus)
    bug = f" --bug {plan.bug}" if plan.bug else ""
    return f"python -m simulation --seed {plan.seed} --world {plan.world}{size}{focus}{bug}"


def describe_failure(result: Result, plan: Plan, command: str, is_coloured: bool = False) -> str:
    """Returns the failure of a plan, the end of its history, and the command that repeats it.

    The end of the history is the last lines of all processes together, before them the last lines
    of each process that did nothing lately, and the last faults.
    """
    lines = [_parse(line) for line in result.trace if line[:1].isdigit() or line[:1] == " "]
    end = lines[-1].seconds if lines else 0.0
    recent, earlier = lines[-_LAST_LINES:], lines[:-_LAST_LINES]
    quiet = _last_of_each(earlier, {line.process for line in recent})
    faults = [line for line in lines if line.is_fault][-_FAULTS:]
    parts = [
        _paint(f"seed {plan.seed} of world {plan.world} broke a rule", _BOLD, is_coloured),
        _paint(f"  {result.failure}", _RED, is_coloured),
        *_section("last faults", faults, end, is_coloured),
        *_section("processes that did nothing later", quiet, end, is_coloured),
        *_section("end of the history", recent, end, is_coloured),
        f"  repeat: {command}",
    ]
    return "\n".join(parts)


def _parse(line: str) -> _Line:
    seconds, thread, *text = line.split(None, 2)
    return _Line(float(seconds), thread, "".join(text))


def _last_of_each(lines: Sequence[_Line], without: set[str]) -> list[_Line]:
    counts: Counter[str] = Counter()
    kept = []
    for line in reversed(lines):
        counts[line.process] += 1
        if line.process not in without and counts[line.process] <= _LINES_PER_PROCESS:
            kept.append(line)
    kept.reverse()
    return kept[-_LAST_LINES:]


def _section(title: str, lines: Sequence[_Line], end: float, is_coloured: bool) -> list[str]:
    if not lines:
        return []
    width = max(len(line.thread) for line in lines)
    rows = []
    for line in lines:
        row = f"  {line.seconds - end:12.3f}  {line.thread:{width}}  {line.text[:_WIDTH_MAX]}"
        rows.append(_paint(row, _YELLOW, is_coloured and line.is_fault))
    return [f"  -- {title} (seconds before the end)", *rows]


def _paint(text: str, colour: str, is_coloured: bool) -> str:
    return f"{colour}{text}{_OFF}" if is_coloured else text


def describe_totals(results: Sequence[Result], seconds: float) -> str:
    """Returns what seeds did in all: operations, faults by kind, virtual time, calls a second."""
    calls = sum(each.calls for each in results)
    busy = sum(each.milliseconds for each in results) or 1
    days = sum(each.virtual_seconds for each in results) / 86_400
    operations: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for result in results:
        operations.update(result.operations or {})
        for fault in result.fault_counts:
            faults[fault.fault] += fault.count
    failed = sorted(each.seed for each in results if each.failure is not None)
    return "\n".join(
        [
            f"{len(results)} seeds in {seconds:.0f} s, {days:,.1f} days of virtual time",
            f"{calls:,} calls, {1000 * calls / busy:,.0f} a second in one process",
            f"operations: {_describe(operations)}",
            f"faults: {_describe(faults)}",
            f"failed: {', '.join(map(str, failed)) or 'none'}",
        ]
    )


def _describe(counts: Counter[str]) -> str:
    pairs = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    total = sum(counts.values())
    return f"{total:,}" + "".join(f", {name} {number:,}" for name, number in pairs)
