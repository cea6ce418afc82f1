"""The command line of the search for planted bugs."""

import sys
from typing import Annotated

import typer

from simulation.bugs.catalogue import BUGS
from simulation.bugs.search import search

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def search_all(
    names: Annotated[list[str] | None, typer.Argument(help="Search these bugs only.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Run at most so many seeds for each bug, its own number if left out."),
    ] = None,
    first: Annotated[int, typer.Option("--from", help="Begin with this seed.")] = 1,
    world: Annotated[
        str | None, typer.Option(help="local or aws, the bug's first one if left out.")
    ] = None,
) -> None:
    """Plants each bug and runs seeds until a check finds it.

    Prints a line for each: its name, the rule, the seeds needed, the seconds. Exit status 1 if a
    bug was not found.
    """
    missed = 0
    for bug in BUGS.values():
        chosen = world or bug.worlds[0]
        if (names and bug.name not in names) or chosen not in bug.worlds:
            continue
        result = search(bug, chosen, first, seeds or bug.seeds_max)
        missed += result.seed is None
        rule = result.rule or "not found"
        print(f"{bug.name:36} | {rule:40} | {result.seeds:3} | {result.seconds:5.0f}", flush=True)
    sys.exit(1 if missed else 0)


def run_command_line() -> None:
    """Runs the command of this process's arguments."""
    app(prog_name="python -m simulation.bugs")
