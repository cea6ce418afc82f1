"""Coverage of faults: which fault fired in which operation at which call, and which never did.

A *call* is a method of a port, or an operation of a service, such as `state.commit`. An operation
is a step of the workload or a process of the instance. A kind of fault that never fired in any
seed is missing in every pair.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simulation.faults import DAMAGES, KINDS
from simulation.result import Result
from sleeper.json_codec import JsonCodec


@dataclass(frozen=True, slots=True)
class PairCoverage:
    """How often an operation made a call, and which faults fired how often, or never."""

    operation: str
    call: str
    count: int
    fired: Mapping[str, int]
    never: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The pairs of operation and call that were reached, and what was not.

    `damaged` counts the stored objects that were damaged, by the damage and the kind of object.
    """

    seeds: int
    pairs: tuple[PairCoverage, ...]
    damaged: Mapping[str, int]
    operations_never_run: tuple[str, ...]
    calls_never_made: tuple[str, ...]


COVERAGES = JsonCodec(Coverage)


def measure_coverage(
    results: Sequence[Result], operations: Iterable[str], calls: Iterable[str]
) -> Coverage:
    """Returns the coverage of results. `operations` and `calls` are those that could be."""
    made: Counter[tuple[str, str]] = Counter()
    fired: Counter[tuple[str, str, str]] = Counter()
    run: Counter[str] = Counter()
    for result in results:
        run.update(result.operations or {})
        for call in result.call_counts:
            made[call.operation, call.call] += call.count
        for fault in result.fault_counts:
            fired[fault.operation, fault.call, fault.fault] += fault.count
    pairs = tuple(
        PairCoverage(
            operation,
            call,
            count,
            {kind: n for kind in KINDS if (n := fired[operation, call, kind])},
            tuple(kind for kind in KINDS if not fired[operation, call, kind]),
        )
        for (operation, call), count in sorted(made.items())
    )
    reached = {call for _, call in made}
    return Coverage(
        len(results),
        pairs,
        {
            f"{call} {kind}": count
            for (_, call, kind), count in sorted(fired.items())
            if kind in DAMAGES
        },
        tuple(sorted(set(operations) - set(run))),
        tuple(sorted(set(calls) - reached)),
    )


def describe_coverage(coverage: Coverage) -> str:
    """Returns a table of the pairs, those without a fault, and lists of what was not reached."""
    possible = len(coverage.pairs) * len(KINDS)
    fired = sum(len(each.fired) for each in coverage.pairs)
    without = sum(not each.fired for each in coverage.pairs)
    return "\n".join(
        [
            *_table(coverage.pairs),
            f"{fired:,} of {possible:,} combinations of operation, call and fault have fired",
            f"{without:,} of {len(coverage.pairs):,} pairs of operation and call met no fault:",
            *_without_fault(coverage.pairs),
            f"damaged objects: {_describe_damage(coverage.damaged)}",
            f"operations never run: {', '.join(coverage.operations_never_run) or 'none'}",
            f"calls never made: {', '.join(coverage.calls_never_made) or 'none'}",
        ]
    )


def _describe_damage(damaged: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in damaged.items()) or "none"


def _without_fault(pairs: Sequence[PairCoverage]) -> list[str]:
    """Returns a line per operation with its calls that met no fault, and how many these were."""
    calls: dict[str, list[str]] = {}
    for each in pairs:
        if not each.fired:
            calls.setdefault(each.operation, []).append(f"{each.call} {each.count:,}")
    return [f"  {operation}: {', '.join(names)}" for operation, names in calls.items()]


def _table(pairs: Sequence[PairCoverage]) -> list[str]:
    """Returns a row per pair, with a dash for a fault that never fired."""
    titles = ("operation", "call", "calls", *KINDS)
    rows = [
        (
            each.operation,
            each.call,
            f"{each.count:,}",
            *(str(each.fired.get(kind, "-")) for kind in KINDS),
        )
        for each in pairs
    ]
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    return [
        "  ".join(
            text.ljust(width) if i < 2 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (titles, *rows)
    ]
