"""Runs seeds with a planted bug until a check finds it."""

import time
from dataclasses import dataclass, replace

from simulation.bugs.planted_bug import PlantedBug
from simulation.forking import run_forked
from simulation.plan import Plan
from simulation.result import Result
from simulation.scenario import run_plan


@dataclass(frozen=True, slots=True)
class Detection:
    """How a bug was found, or not: by which rule, in which seed, after how many seeds."""

    bug: PlantedBug
    seeds: int
    seconds: float
    seed: int | None = None
    rule: str | None = None


def search(
    bug: PlantedBug, world: str, first: int, seeds: int, seconds_max: float | None = None
) -> Detection:
    """Runs seeds from the first one on, until one of the bug's rules is broken.

    A seed that breaks the rule without the bug too does not count.
    """
    start, count = time.monotonic(), 0
    for seed in range(first, first + seeds):
        if seconds_max is not None and time.monotonic() - start > seconds_max:
            break
        count += 1
        plan = Plan(seed, world, bug.size, bug.focus)
        rule = bug.broken_rule(_run(replace(plan, bug=bug.name)).failure)
        if rule is not None and bug.broken_rule(_run(plan).failure) is None:
            return Detection(bug, count, time.monotonic() - start, seed, rule)
    return Detection(bug, count, time.monotonic() - start)


def _run(plan: Plan) -> Result:
    return next(run_forked([plan], run_plan))
