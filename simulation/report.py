"""Texts on results: a failure with the end of its history, and totals of many seeds."""

from collections import Counter
from collections.abc import Sequence

from simulation.result import Result

_TRACE_LINES = 25


def describe_failure(result: Result) -> str:
    """Returns the failure of a seed, the end of its history, and the command that repeats it."""
    lines = [
        f"seed {result.seed} failed: {result.failure}",
        *(f"  {line}" for line in result.trace[-_TRACE_LINES:]),
        f"  repeat: python -m simulation --seed {result.seed} --trace FILE",
    ]
    return "\n".join(lines)


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
    calls_of_operations = {(c.operation, c.call) for each in results for c in each.call_counts}
    reached = {(f.operation, f.call) for each in results for f in each.fault_counts}
    failed = [each.seed for each in results if each.failure is not None]
    return "\n".join(
        [
            f"{len(results)} seeds in {seconds:.0f} s, {days:,.1f} days of virtual time",
            f"{calls:,} calls, {1000 * calls / busy:,.0f} a second in one process",
            f"operations: {_describe(operations)}",
            f"faults: {_describe(faults)}",
            f"calls of operations that met a fault: {len(reached)} of {len(calls_of_operations)}",
            f"failed: {', '.join(map(str, failed)) or 'none'}",
        ]
    )


def _describe(counts: Counter[str]) -> str:
    pairs = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    total = sum(counts.values())
    return f"{total:,}" + "".join(f", {name} {number:,}" for name, number in pairs)
