"""All planted bugs, by name."""

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.bugs import aws_bugs, hold_bugs, state_bugs, system_bugs, workflow_bugs
from simulation.bugs.planted_bug import PlantedBug

BUGS: dict[str, PlantedBug] = {
    each.name: each
    for bugs in (state_bugs, hold_bugs, workflow_bugs, system_bugs, aws_bugs)
    for each in bugs.BUGS
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plants the bug in the block, if there is a name."""
    if name is None:
        yield
        return
    with BUGS[name].mutation.applied():
        yield
