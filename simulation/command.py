"""The command line of the simulation."""

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from simulation.aws import service_calls
from simulation.coverage import COVERAGES, describe_coverage, measure_coverage
from simulation.faults import DAMAGES, KINDS
from simulation.forking import run_forked
from simulation.local import port_calls
from simulation.plan import PLANS, Plan
from simulation.progress import Progress
from simulation.report import describe_failure, describe_totals, replay_command
from simulation.result import RESULTS, Result
from simulation.scenario import run_plan
from simulation.shrink import shrink
from simulation.workload.system_operations import OPERATIONS
from sleeper.errors import SleeperError

_WORLDS = ("local", "aws")
_CALLS = {"local": port_calls.list_calls, "aws": service_calls.list_calls}
_INTERRUPTED_STATUS = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(
    epilog="Examples:\n\n"
    "  python -m simulation --seeds 1000 --world local\n\n"
    "  python -m simulation --minutes 30 --coverage\n\n"
    "  python -m simulation --seed 7 --world local --trace history.txt\n\n"
    "  python -m simulation --seed 7 --world local --shrink\n\n"
    "  python -m simulation --replay simulation-7.json"
)
def simulate(
    seed: Annotated[int | None, typer.Option(help="Run this seed only.", min=0)] = None,
    seeds: Annotated[int, typer.Option(help="Run so many seeds.", min=1)] = 20,
    first: Annotated[int, typer.Option("--from", help="Begin with this seed.", min=0)] = 1,
    minutes: Annotated[
        float | None, typer.Option(help="Run seeds for so long, instead of --seeds.", min=0)
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Run the plan of a file.")] = None,
    world: Annotated[str, typer.Option(help="local, aws, or all, which alternate.")] = "all",
    size: Annotated[
        int | None, typer.Option(help="Steps of a history, 20, 60 or 150 if left out.", min=1)
    ] = None,
    focus: Annotated[
        list[str] | None,
        typer.Option(help="Make this operation or kind of fault frequent. May be repeated."),
    ] = None,
    bug: Annotated[str | None, typer.Option(help="Plant this bug, see simulation/bugs.")] = None,
    parallel: Annotated[int, typer.Option(help="Processes that run at the same time.", min=1)] = 2,
    trace: Annotated[Path | None, typer.Option(help="Write the history of one seed here.")] = None,
    shrinks: Annotated[
        bool, typer.Option("--shrink", help="Shorten the first failure to a plan in a file.")
    ] = False,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Print which faults fired at which calls.")
    ] = False,
    output: Annotated[str, typer.Option(help="text, or json: one result a line.")] = "text",
) -> None:
    """Runs a whole instance in a seeded world of faults, and checks that no rule is broken.

    Prints the number of a seed that fails, the end of its history, and the command that replays it.
    Exit status: 0 if all seeds passed, 1 if one failed, 2 for wrong usage, 130 if interrupted.
    """
    _check_usage(world, output, trace, is_one=seed is not None or replay is not None)
    _check_focus(focus or [])
    if replay is not None:
        plans: Iterable[Plan] = [_read_plan(replay)]
    else:
        numbers = _numbers(seed, first, None if minutes is not None else seeds)
        plans = (
            Plan(number, _world_of(world, number), size, tuple(focus or ()), bug=bug)
            for number in numbers
        )
    count_max = None if minutes is not None else 1 if seed is not None else seeds
    seconds = None if minutes is None else minutes * 60
    runs = _Runs(trace, output, Progress(1 if replay is not None else count_max, seconds))
    runs.run(_until(plans, minutes), parallel)
    runs.print_totals(coverage)
    if shrinks and runs.failed:
        _print_shrunk(*runs.failed[0])
    sys.exit(_INTERRUPTED_STATUS if runs.is_interrupted else 1 if runs.failed else 0)


def _check_usage(world: str, output: str, trace: Path | None, is_one: bool) -> None:
    if world not in (*_WORLDS, "all"):
        raise typer.BadParameter(f"{world} (expected local, aws or all)", param_hint="--world")
    if output not in ("text", "json"):
        raise typer.BadParameter(f"{output} (expected text or json)", param_hint="--output")
    if trace is not None and not is_one:
        raise typer.BadParameter("needs --seed or --replay", param_hint="--trace")


def _check_focus(names: Iterable[str]) -> None:
    for name in names:
        if name not in (*OPERATIONS, *KINDS, *DAMAGES):
            expected = ", ".join((*OPERATIONS, *KINDS, *DAMAGES))
            raise typer.BadParameter(f"{name} (expected one of {expected})", param_hint="--focus")


def _numbers(seed: int | None, first: int, seeds: int | None) -> Iterator[int]:
    """Returns the seeds to run, without an end if their number is None."""
    if seed is not None:
        return iter((seed,))
    return count(first) if seeds is None else iter(range(first, first + seeds))


def _world_of(world: str, seed: int) -> str:
    return _WORLDS[seed % 2] if world == "all" else world


def _read_plan(path: Path) -> Plan:
    try:
        return PLANS.parse(path.read_text(), str(path))
    except (OSError, ValueError, SleeperError) as error:
        raise typer.BadParameter(
            f"cannot read a plan: {error} (expected a file of --shrink)", param_hint="--replay"
        ) from error


def _until(plans: Iterable[Plan], minutes: float | None) -> Iterator[Plan]:
    end = None if minutes is None else time.monotonic() + minutes * 60
    for plan in plans:
        if end is not None and time.monotonic() > end:
            return
        yield plan


class _Runs:
    """The runs of a command: prints failures as they come, and keeps results."""

    def __init__(self, trace: Path | None, output: str, progress: Progress) -> None:
        self._trace, self._output, self._progress = trace, output, progress
        self._start = time.monotonic()
        self._plans: dict[int, Plan] = {}
        self._results: list[Result] = []
        self.failed: list[tuple[Plan, Result]] = []
        self.is_interrupted = False

    def run(self, plans: Iterable[Plan], parallel: int) -> None:
        """Runs plans until they end or the user interrupts them."""
        try:
            results = run_forked(self._noted(plans), lambda p: run_plan(p, self._trace), parallel)
            for result in results:
                self._add(result)
        except KeyboardInterrupt:
            self.is_interrupted = True
        self._progress.clear()

    def _noted(self, plans: Iterable[Plan]) -> Iterator[Plan]:
        for plan in plans:
            self._plans[plan.seed] = plan
            yield plan

    def _add(self, result: Result) -> None:
        self._results.append(result)
        plan = self._plans[result.seed]
        self._progress.clear()
        if self._output == "json":
            print(RESULTS.format(result), flush=True)
        if result.failure is not None:
            self.failed.append((plan, result))
            if self._output == "text":
                text = describe_failure(result, plan, replay_command(plan), sys.stdout.isatty())
                print(text, flush=True)
        self._progress.add(result)

    def print_totals(self, with_coverage: bool) -> None:
        """Prints what all seeds did."""
        is_text = self._output == "text"
        if with_coverage:
            worlds = {plan.world for plan in self._plans.values()}
            calls = [call for world in worlds for call in _CALLS[world]()]
            measured = measure_coverage(self._results, OPERATIONS, calls)
            print(describe_coverage(measured) if is_text else COVERAGES.format(measured))
        if is_text:
            print(describe_totals(self._results, time.monotonic() - self._start), flush=True)


def _print_shrunk(plan: Plan, result: Result) -> None:
    """Shortens a failure, writes its plan to a file, and prints how to run that."""
    steps, faults = len(result.steps), len(result.faults)
    plan, result = shrink(plan, result, lambda each: next(run_forked([each], run_plan)))
    path = Path(f"simulation-{plan.seed}.json")
    path.write_text(PLANS.format(plan) + "\n")
    print(
        f"shortened from {steps} steps and {faults} faults "
        f"to {len(result.steps)} steps and {len(plan.faults or ())} faults"
    )
    command = f"python -m simulation --replay {path}"
    print(describe_failure(result, plan, command, sys.stdout.isatty()), flush=True)


def run_command_line() -> None:
    """Runs the command of this process's arguments."""
    app(prog_name="python -m simulation")
