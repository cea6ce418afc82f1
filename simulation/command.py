"""The command line of the simulation."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Annotated

import typer

from simulation.forking import run_forked
from simulation.plan import PLANS, Plan
from simulation.report import describe_failure, describe_totals
from simulation.result import RESULTS, Result
from simulation.scenario import run_plan
from simulation.shrink import shrink

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def simulate(
    seed: Annotated[int | None, typer.Option(help="Run this seed only.")] = None,
    seeds: Annotated[int, typer.Option(help="Run so many seeds.")] = 20,
    first: Annotated[int, typer.Option("--from", help="Begin with this seed.")] = 1,
    minutes: Annotated[float | None, typer.Option(help="Run seeds for so long.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Run a plan that a failure printed.")] = None,
    world: Annotated[str, typer.Option(help="local, aws, or all, which alternate.")] = "all",
    bug: Annotated[str | None, typer.Option(help="Plant this bug, see simulation/bugs.")] = None,
    parallel: Annotated[int, typer.Option(help="Processes that run at the same time.")] = 2,
    trace: Annotated[Path | None, typer.Option(help="Write the history of one seed here.")] = None,
    shrinks: Annotated[bool, typer.Option("--shrink", help="Shorten the first failure.")] = False,
    output: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Runs a whole instance in a seeded world of faults, and checks that no rule is broken.

    Prints the number of a seed that fails, the end of its history, and the command that replays it.
    Exit status 1 if one failed.
    """
    plans: Iterable[Plan]
    if replay is not None:
        plans = [PLANS.parse(replay.read_text(), str(replay))]
    elif seed is not None:
        plans = [Plan(seed, _world_of(world, seed), bug=bug)]
    else:
        numbers = count(first) if minutes is not None else islice(count(first), seeds)
        plans = (Plan(number, _world_of(world, number), bug=bug) for number in numbers)
    end = None if minutes is None else time.monotonic() + minutes * 60
    results = _run(plans, parallel, trace, end, output)
    failed = [result for result in results if result.failure is not None]
    if failed and shrinks:
        _print_shrunk(failed[0], world, bug)
    sys.exit(1 if failed else 0)


def _world_of(world: str, seed: int) -> str:
    return ("local", "aws")[seed % 2] if world == "all" else world


def _run(
    plans: Iterable[Plan], parallel: int, trace: Path | None, end: float | None, output: str
) -> list[Result]:
    start = time.monotonic()
    results = []
    for result in run_forked(_until(plans, end), lambda plan: run_plan(plan, trace), parallel):
        results.append(result)
        if output == "json":
            print(RESULTS.format(result), flush=True)
        elif result.failure is not None:
            print(describe_failure(result), flush=True)
        print(f"\r{len(results)} seeds", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if output == "text":
        print(describe_totals(results, time.monotonic() - start))
    return results


def _until(plans: Iterable[Plan], end: float | None) -> Iterator[Plan]:
    for plan in plans:
        if end is not None and time.monotonic() > end:
            return
        yield plan


def _print_shrunk(result: Result, world: str, bug: str | None) -> None:
    def run(plan: Plan) -> Result:
        return next(run_forked([plan], run_plan))

    plan = Plan(result.seed, _world_of(world, result.seed), bug=bug)
    plan, result = shrink(plan, result, run)
    kinds = Counter(each.kind for each in plan.faults or ())
    print(f"shortened to {len(result.steps)} steps and {dict(kinds) or 'no'} faults:")
    print(describe_failure(result))
    print(PLANS.format(plan))


def run_command_line() -> None:
    """Runs the command of this process's arguments."""
    app(prog_name="python -m simulation")
