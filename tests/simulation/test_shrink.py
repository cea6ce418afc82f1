"""Shrinking leaves the steps and faults that a failure needs."""

from simulation.plan import Plan
from simulation.result import FaultName, Result
from simulation.shrink import shrink

STEPS = tuple(f"client{1 + number % 3}.{number // 3}" for number in range(90))
FAULTS = tuple(FaultName(f"{step} state.commit 1", "lost") for step in STEPS[::2])
NEEDED_STEPS = {STEPS[7], STEPS[40], STEPS[88]}
NEEDED_FAULT = FAULTS[20]


def run(plan: Plan) -> Result:
    """A run that fails if it has three steps and a fault, by another rule if it lacks one."""
    steps = tuple(step for step in STEPS if plan.has_step(step))
    faults = tuple(each for each in FAULTS if plan.faults is None or each in plan.faults)
    if not set(steps) >= NEEDED_STEPS:
        return Result(plan.seed, "progress: other" if len(steps) > 60 else None, steps=steps)
    failure = "rule: broken" if NEEDED_FAULT in faults else None
    return Result(plan.seed, failure, steps=steps, faults=faults)


def test_a_failure_of_ninety_steps_is_shortened_to_what_it_needs() -> None:
    plan = Plan(7)
    plan, result = shrink(plan, run(plan), run)
    assert set(result.steps) == NEEDED_STEPS
    assert plan.faults == (NEEDED_FAULT,)
    assert run(plan).failure == "rule: broken"


def test_the_number_of_runs_is_limited() -> None:
    runs = []

    def count(plan: Plan) -> Result:
        runs.append(plan)
        return run(plan)

    plan = Plan(7)
    plan, result = shrink(plan, run(plan), count, runs_max=10)
    assert len(runs) == 10
    assert result.rule == "rule"
