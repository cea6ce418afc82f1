"""Makes a failing run shorter: leaves out faults and steps while the same rule is still broken.

Delta debugging: halves, quarters and so on are left out, and finally single ones. A run with other
steps or faults has another order of its processes, so a removal that loses the failure is undone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from simulation.plan import Plan
from simulation.result import FaultName, Result

T = TypeVar("T")


def shrink(
    plan: Plan, result: Result, run: Callable[[Plan], Result], runs_max: int = 200
) -> tuple[Plan, Result]:
    """Returns a shorter plan that breaks the same rule, and its result."""
    shrinker = _Shrinker(run, result.rule, runs_max)
    best = plan, result
    best = shrinker.improve(best, replace(best[0], faults=best[1].faults))
    best = shrinker.improve(best, replace(best[0], steps=best[1].steps))
    while True:
        before = best[0]
        best = shrinker.reduce(best, best[1].steps, _with_steps)
        best = shrinker.reduce(best, best[0].faults or (), _with_faults)
        if best[0] == before or shrinker.runs_left <= 0:
            return best


def _with_steps(plan: Plan, kept: Sequence[str]) -> Plan:
    return replace(plan, steps=tuple(kept))


def _with_faults(plan: Plan, kept: Sequence[FaultName]) -> Plan:
    return replace(plan, faults=tuple(kept))


Best = tuple[Plan, Result]


class _Shrinker:
    def __init__(self, run: Callable[[Plan], Result], rule: str, runs_max: int) -> None:
        self._run = run
        self._rule = rule
        self.runs_left = runs_max

    def improve(self, best: Best, plan: Plan) -> Best:
        """Returns the plan with its result if it breaks the same rule, else the best so far."""
        self.runs_left -= 1
        result = self._run(plan)
        return (plan, result) if result.failure is not None and result.rule == self._rule else best

    def reduce(
        self,
        best: Best,
        parts: Sequence[T],
        make: Callable[[Plan, Sequence[T]], Plan],
    ) -> Best:
        """Leaves out parts of the plan, the largest groups first."""
        kept, size = list(parts), max(1, len(parts) // 2)
        while kept and self.runs_left > 0:
            start = 0
            while start < len(kept) and self.runs_left > 0:
                fewer = kept[:start] + kept[start + size :]
                better = self.improve(best, make(best[0], fewer))
                if better is best:
                    start += size
                else:
                    best, kept = better, fewer
            if size == 1:
                break
            size //= 2
        return best
